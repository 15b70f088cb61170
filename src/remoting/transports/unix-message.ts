// What travels over the unix socket of a guest: one message for each set of descriptors, and a refusal in words.

import { MillraceError } from '../../errors.ts';
import { AGAIN, type Fd, type Socket } from '../../native/index.ts';

export const messageKinds = {
  /** Backend: memfd of the call area, the eventfd that wakes the backend, the one that wakes the guest. */
  welcome: 1,
  /** Backend: one memfd. The number is that of its range. */
  memory: 2,
  /** Guest: one memfd of its own. The number is that of its range. */
  offer: 3,
  /** Backend: why not, as text. */
  refusal: 4,
  /** Guest: the first of all. Who connects and says nothing only wanted to know whether somebody listens. */
  knock: 5,
  /** Whoever has started QEMU: memfd of the shared memory, its monitor, its ports; the number is how many of those, the text its name. */
  machine: 6,
  /** Backend: the answer to that. */
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

/** Throws when the other side leaves its messages lying: its socket is full. */
export function sendMessage(socket: Socket, kind: number, number: number, fds: readonly number[], text = ''): void {
  const words = new TextEncoder().encode(text).subarray(0, MAX_BYTES - HEADER_BYTES);
  const bytes = new Uint8Array(HEADER_BYTES + words.length);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, kind, true);
  view.setUint32(4, number, true);
  bytes.set(words, HEADER_BYTES);
  if (socket.sendFds(bytes, fds) === AGAIN) {
    throw new MillraceError('MILLRACE_ERR_PROTOCOL', 'pass memory to the other side: it does not take what it is sent');
  }
}

/** The next message, or undefined when there is none. One that is none, or ended, throws. Its descriptors are the caller's. */
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
