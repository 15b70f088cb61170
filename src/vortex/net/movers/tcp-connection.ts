// The data connection of a stream on plain TCP: how a receiver opens it, and how a sender sets its
// buffer.

import { constants } from 'node:os';
import { SystemError } from '../../../errors.ts';
import { FdWatch, ip, Poller, pollEvents, SharedMemory, Socket } from '../../../native/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import { DATA_FIRST_BYTE, PREFACE_BYTES } from '../protocol.ts';
import { brokenConnection, TcpReceiver } from './tcp-mover.ts';

/** Below this round trip a receiver counts as near. */
const NEAR_US = 100;
/** The kernel doubles it, which is enough for 5 GB/s at NEAR_US. */
const NEAR_SEND_BYTES = 256 * 1024;

/** Dials the sender a second time, and sends the token of its control connection. */
export async function openTcpReceiver(
  queue: BlockQueue,
  host: string,
  port: number,
  token: string,
  signal: AbortSignal,
): Promise<TcpReceiver> {
  using undo = new DisposableStack();
  const address = ip(host, port);
  const socket = undo.use(Socket.stream(address.family));
  try {
    if (!socket.connect(address)) await finishConnect(socket, signal);
    using preface = SharedMemory.create({ sizeBytes: 4096, name: 'vortex-preface' });
    const bytes = new Uint8Array(preface.buffer, 0, PREFACE_BYTES);
    bytes[0] = DATA_FIRST_BYTE;
    bytes.set(Buffer.from(token, 'hex'), 1);
    // The send buffer of a new connection always has room for these bytes.
    socket.send(preface, 0, PREFACE_BYTES);
  } catch (error) {
    signal.throwIfAborted();
    throw brokenConnection(error);
  }
  undo.move();
  return new TcpReceiver(queue, socket);
}

/**
 * A watch sees only readable descriptors: a poller that waits for `out` becomes readable when the
 * socket is writable.
 */
async function finishConnect(socket: Socket, signal: AbortSignal): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  using poller = Poller.create(1);
  poller.add(socket.fd, pollEvents.out, 0);
  using watch = FdWatch.start(poller.fd, resolve);
  watch.hold(true);
  const onAbort = (): void => reject(signal.reason);
  signal.addEventListener('abort', onAbort);
  try {
    if (signal.aborted) onAbort();
    await promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
  if (!socket.finishConnect()) throw new SystemError(-constants.errno.ECONNRESET, 'connect');
}

/**
 * To a near receiver, more bytes in flight give no more speed, and bytes that wait for long have
 * left the processor's cache when they are copied out again: 0.3 s of processor time per GB between
 * two namespaces instead of 0.65. For a receiver farther away the kernel finds the size.
 */
export function limitSendBuffer(socket: Socket): void {
  if (socket.roundTripUs < NEAR_US) socket.setOption('sendBuffer', NEAR_SEND_BYTES);
}
