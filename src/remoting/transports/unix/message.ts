// Messages on the unix socket between a guest and the backend: each has a kind, a number, text and
// descriptors.

import { MillraceError } from '../../../errors.ts';
import { AGAIN, type Fd, type Socket } from '../../../native/index.ts';

export const messageKinds = {
  /**
   * Backend: memfd of the call area, the eventfd that wakes the backend, the one that wakes the
   * guest.
   */
  welcome: 1,
  /** Backend: one memfd. The number is that of its range. */
  memory: 2,
  /** Guest: one memfd of its own. The number is that of its range. */
  offer: 3,
  /** Backend: why the peer is not served, as text. */
  refusal: 4,
  /**
   * Guest: its first message asks to be served. A peer that connects and sends nothing only tests
   * whether a backend listens.
   */
  request: 5,
  /**
   * The process that has started QEMU: memfd of the shared memory, monitor, ports. The number is
   * that of the ports, the text the machine's name.
   */
  machine: 6,
  /** Backend: the machine is served. */
  registered: 7,
} as const;

const HEADER_BYTES = 8;
const MAX_BYTES = 1024;

export interface UnixMessage {
  readonly kind: number;
  readonly number: number;
  readonly text: string;
  readonly fds: readonly Fd[];
}

/** Throws when the socket is full because the other side does not read its messages. */
export function sendMessage(socket: Socket, kind: number, number: number, fds: readonly number[], text = ''): void {
  const words = new TextEncoder().encode(text).subarray(0, MAX_BYTES - HEADER_BYTES);
  const bytes = new Uint8Array(HEADER_BYTES + words.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, kind, true);
  view.setUint32(4, number, true);
  bytes.set(words, HEADER_BYTES);
  if (socket.sendFds(bytes, fds) === AGAIN) {
    throw new MillraceError(
      'MILLRACE_ERR_PROTOCOL',
      'send a message to the other side of remoting: its socket is full, because it does not read',
    );
  }
}

/**
 * The next message, or undefined when there is none yet. Throws when the connection has ended. The
 * descriptors belong to whoever calls it.
 */
export function receiveMessage(socket: Socket): UnixMessage | undefined {
  const bytes = new Uint8Array(MAX_BYTES);
  const got = socket.receiveFds(bytes);
  if (got === undefined) return undefined;
  if (got.bytes < HEADER_BYTES) {
    for (const fd of got.fds) fd.close();
    throw new MillraceError('MILLRACE_ERR_BACKEND_GONE', 'remoting: the other side has ended the connection');
  }
  const view = new DataView(bytes.buffer);
  const text = new TextDecoder().decode(bytes.subarray(HEADER_BYTES, got.bytes));
  return { kind: view.getUint32(0, true), number: view.getUint32(4, true), text, fds: got.fds };
}
