// One direction of bytes between two processes: a ring in shared memory with one writer and one
// reader.
//
// Layout, in 32-bit words. Each index has a cache line of its own. Indexes count bytes modulo 2^32;
// the capacity is a power of two, so an index modulo the capacity is a place in the ring.
//   word  0  head: bytes written so far. Stored by the writer only.
//   word 16  tail: bytes read so far. Stored by the reader only.
//   word 32  reader sleeps: the reader sets it before it waits; the writer clears it and signals.
//   word 48  writer waits: the writer sets it when the ring is full; the reader clears it and signals.
//   word 64  epoch: counts revocations of memory regions. Stored by the owner of the regions (see shm-wire.ts).
//
// Ordering. The writer copies bytes and then stores head (release); the reader loads head (acquire)
// and then copies: so it sees the bytes. The reader copies and then stores tail (release); the
// writer loads tail (acquire) before it writes there again. Sleeping: the reader stores the flag
// and then loads head; the writer stores head and then loads the flag. With sequentially consistent
// operations (see native/atomics.ts) at least one of them sees the other's store.
//
// The other side is not trusted: its index is checked against this side's before it is used, and a
// frame is copied out before it is checked.

import { MillraceError } from '../../errors.ts';
import {
  AGAIN,
  compareExchange,
  copyMemory,
  type EventFd,
  loadAcquire,
  type SharedMemory,
  storeRelease,
} from '../../native/index.ts';
import type { Pieces } from './pieces.ts';

const HEAD = 0;
const TAIL = 16;
const READER_SLEEPS = 32;
const WRITER_WAITS = 48;
export const EPOCH_WORD = 64;
const DATA_OFFSET = 4096;

export function ringBytes(capacity: number): number {
  return DATA_OFFSET + capacity;
}

function viewOf(memory: SharedMemory): { words: Int32Array; capacity: number } {
  const capacity = memory.sizeBytes - DATA_OFFSET;
  if (capacity < 4096 || capacity > 2 ** 30 || (capacity & (capacity - 1)) !== 0) {
    throw new MillraceError('MILLRACE_ERR_FAILED', `a ring of ${memory.sizeBytes} bytes`);
  }
  return { words: new Int32Array(memory.buffer, 0, DATA_OFFSET / 4), capacity };
}

/**
 * Wakes the other side if its flag says that it waits. Partner: the store of that flag in `write`
 * or `sleep`.
 */
function wake(words: Int32Array, flag: number, event: EventFd): void {
  if (loadAcquire(words, flag) === 1 && compareExchange(words, flag, 1, 0) === 1) event.signal();
}

export class RingWriter {
  readonly #memory: SharedMemory;
  readonly #words: Int32Array;
  readonly #capacity: number;
  readonly #peerEvent: EventFd;
  #head: number;
  /** Something was written since the last flush. */
  #hasWritten = false;

  /** `peerEvent` wakes the reader. */
  constructor(memory: SharedMemory, peerEvent: EventFd) {
    const { words, capacity } = viewOf(memory);
    this.#memory = memory;
    this.#words = words;
    this.#capacity = capacity;
    this.#peerEvent = peerEvent;
    this.#head = loadAcquire(words, HEAD) | 0;
  }

  /** Writes what follows the first `skip` bytes of the pieces, as far as there is room. */
  write(pieces: Pieces, skip: number): number {
    let room = this.#room();
    if (room === 0) {
      // Stores the flag, then loads the tail. Partner: `read`, which stores the tail and then loads
      // the flag.
      storeRelease(this.#words, WRITER_WAITS, 1);
      room = this.#room();
      if (room === 0) return AGAIN;
    }
    let passed = 0;
    let written = 0;
    for (let piece = 0; piece < pieces.count && room > 0; piece++) {
      const length = pieces.lengths[piece];
      const from = Math.max(0, skip - passed);
      passed += length;
      if (from >= length) continue;
      const bytes = Math.min(length - from, room);
      this.#copyIn(pieces.memories[piece], pieces.offsets[piece] + from, bytes);
      written += bytes;
      room -= bytes;
    }
    // Partner: the loads of `RingReader`, before it copies.
    storeRelease(this.#words, HEAD, this.#head);
    this.#hasWritten = true;
    return written;
  }

  /**
   * Wakes only after something was written: otherwise two sides would keep waking each other and
   * never sleep.
   */
  flush(): void {
    if (!this.#hasWritten) return;
    this.#hasWritten = false;
    wake(this.#words, READER_SLEEPS, this.#peerEvent);
  }

  #room(): number {
    // Partner: the store of `read`, after it has copied.
    const used = (this.#head - loadAcquire(this.#words, TAIL)) >>> 0;
    if (used > this.#capacity)
      throw new MillraceError('MILLRACE_ERR_FAILED', 'protocol error: the peer stored an invalid index in the ring');
    return this.#capacity - used;
  }

  #copyIn(memory: SharedMemory, offset: number, bytes: number): void {
    const at = this.#head & (this.#capacity - 1);
    const first = Math.min(bytes, this.#capacity - at);
    copyMemory(this.#memory, DATA_OFFSET + at, memory, offset, first);
    if (first < bytes) copyMemory(this.#memory, DATA_OFFSET, memory, offset + first, bytes - first);
    this.#head = (this.#head + bytes) | 0;
  }
}

export class RingReader {
  readonly #memory: SharedMemory;
  readonly #words: Int32Array;
  readonly #capacity: number;
  readonly #peerEvent: EventFd;
  #tail: number;

  /** `peerEvent` wakes a writer that waits for room. */
  constructor(memory: SharedMemory, peerEvent: EventFd) {
    const { words, capacity } = viewOf(memory);
    this.#memory = memory;
    this.#words = words;
    this.#capacity = capacity;
    this.#peerEvent = peerEvent;
    this.#tail = loadAcquire(words, TAIL) | 0;
  }

  /** Partner: the store of `write`. */
  get isEmpty(): boolean {
    return loadAcquire(this.#words, HEAD) === this.#tail;
  }

  /**
   * May be any number, because the writer is not trusted. Partner: the store of `write`, after it
   * has copied.
   */
  get waitingBytes(): number {
    return (loadAcquire(this.#words, HEAD) - this.#tail) >>> 0;
  }

  read(memory: SharedMemory, offset: number, length: number): number {
    const available = this.waitingBytes;
    if (available === 0) return AGAIN;
    if (available > this.#capacity)
      throw new MillraceError('MILLRACE_ERR_FAILED', 'protocol error: the peer stored an invalid index in the ring');
    const bytes = Math.min(available, length);
    const at = this.#tail & (this.#capacity - 1);
    const first = Math.min(bytes, this.#capacity - at);
    copyMemory(memory, offset, this.#memory, DATA_OFFSET + at, first);
    if (first < bytes) copyMemory(memory, offset + first, this.#memory, DATA_OFFSET, bytes - first);
    this.#tail = (this.#tail + bytes) | 0;
    // Partner: the load of `RingWriter.#room`.
    storeRelease(this.#words, TAIL, this.#tail);
    wake(this.#words, WRITER_WAITS, this.#peerEvent);
    return bytes;
  }

  /**
   * Asks to be woken by the next bytes. False when there are some already, and the reader must not
   * sleep.
   */
  sleep(): boolean {
    // Stores the flag, then loads the head. Partner: `write` and `flush`, which store the head and
    // then load the flag.
    storeRelease(this.#words, READER_SLEEPS, 1);
    return this.isEmpty;
  }
}
