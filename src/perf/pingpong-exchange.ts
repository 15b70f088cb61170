// The exchange of ibv_rc_pingpong over TCP: the client sends its address, the server answers with
// its own, the client sends "done". Addresses are text of a fixed length, ended by a NUL.

import type { Duplex } from 'node:stream';
import { MillraceError } from '../errors.ts';
import { formatGid, type Gid, gidBytes } from '../verbs/index.ts';

export interface PingpongAddress {
  readonly lid: number;
  readonly qpNumber: number;
  readonly psn: number;
  readonly gid: Gid;
}

/** LID, QP number, PSN and GID in hexadecimal digits: `0000:000000:000000:` and 32 of the GID. */
const pattern = /^([0-9a-f]{4}):([0-9a-f]{6}):([0-9a-f]{6}):([0-9a-f]{32})$/i;
export const ADDRESS_BYTES = 52;
const done = Buffer.from('done\0');
/** Without the NUL, which not all versions send. */
const DONE_BYTES = 4;

export function encodeAddress({ lid, qpNumber, psn, gid }: PingpongAddress): Buffer {
  const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
  const gidText = Buffer.from(gidBytes(gid)).toString('hex');
  return Buffer.from(`${hex(lid, 4)}:${hex(qpNumber, 6)}:${hex(psn, 6)}:${gidText}\0`);
}

/** Throws when the peer sent something else. */
export function decodeAddress(bytes: Buffer): PingpongAddress {
  const text = bytes.subarray(0, ADDRESS_BYTES - 1).toString('latin1');
  const [, lid, qpNumber, psn, gid] = pattern.exec(text) ?? [];
  if (bytes.length !== ADDRESS_BYTES || bytes[ADDRESS_BYTES - 1] !== 0 || gid === undefined) {
    throw failure(`it sent ${JSON.stringify(text)}, which is no address (LID:QPN:PSN:GID)`);
  }
  const number = (digits: string | undefined): number => Number.parseInt(digits ?? '0', 16);
  return {
    lid: number(lid),
    qpNumber: number(qpNumber),
    psn: number(psn),
    gid: formatGid(Buffer.from(gid, 'hex')),
  };
}

/**
 * Calls `connect` with the peer's address; on the server before it answers, so that the client may
 * send at once.
 */
export async function exchange(
  socket: Duplex,
  role: 'client' | 'server',
  own: PingpongAddress,
  signal: AbortSignal,
  connect: (peer: PingpongAddress) => void,
): Promise<PingpongAddress> {
  if (role === 'client') {
    socket.write(encodeAddress(own));
    const peer = decodeAddress(await readExactly(socket, ADDRESS_BYTES, signal));
    connect(peer);
    socket.write(done);
    return peer;
  }
  const peer = decodeAddress(await readExactly(socket, ADDRESS_BYTES, signal));
  connect(peer);
  socket.write(encodeAddress(own));
  const said = await readExactly(socket, DONE_BYTES, signal);
  if (!said.equals(done.subarray(0, DONE_BYTES))) throw failure('it did not send "done"');
  return peer;
}

/** Reads `count` bytes; what follows stays in the stream. */
async function readExactly(socket: Duplex, count: number, signal: AbortSignal): Promise<Buffer> {
  signal.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const onReadable = (): void => {
    const bytes: Buffer | null = socket.read(count);
    if (bytes?.length === count) resolve(bytes);
    // At its end, the stream returns fewer bytes than asked for.
    else if (bytes !== null) onEnd();
  };
  const onEnd = (): void => reject(failure('it closed the connection'));
  const onError = (error: Error): void => reject(failure(error.message));
  const onAbort = (): void => reject(signal.reason);
  socket.on('readable', onReadable).on('end', onEnd).on('close', onEnd).on('error', onError);
  signal.addEventListener('abort', onAbort);
  try {
    if (socket.destroyed || socket.readableEnded) onEnd();
    else onReadable();
    return await promise;
  } finally {
    socket.off('readable', onReadable).off('end', onEnd).off('close', onEnd).off('error', onError);
    signal.removeEventListener('abort', onAbort);
  }
}

function failure(reason: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `pingpong: exchange addresses with the peer: ${reason}`);
}
