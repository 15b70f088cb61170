// What carries frames: a stream of bytes in both directions that never blocks. A TCP socket is one,
// two rings in shared memory are one.

import type { SharedMemory } from '../../native/index.ts';
import type { Pieces } from './pieces.ts';

export interface ByteStream {
  /**
   * Sends what comes after the first `skip` bytes of the pieces. How many bytes were taken, or
   * AGAIN. Throws when broken.
   */
  send(pieces: Pieces, skip: number): number;
  /** Bytes received, AGAIN, or 0 when the peer has closed. Throws when broken. */
  receive(memory: SharedMemory, offset: number, length: number): number;
  /** How many bytes a receive would find now. */
  readonly waitingBytes: number;
  /** After a burst: wakes a peer that sleeps. */
  flush(): void;
  /** Whether a receive is worth trying; loads memory only. */
  readonly mayReceive: boolean;
  close(): void;
}
