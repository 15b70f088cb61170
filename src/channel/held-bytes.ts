// Held bytes of a stream whose program is slow: copied out of the ring, so that the ring goes on
// for other streams.

import type { BufferPool, PooledBuffer } from '../loop/index.ts';
import { copyMemory, type SharedMemory } from '../native/index.ts';

export class HeldBytes {
  readonly #pool: BufferPool;
  readonly #buffers: PooledBuffer[] = [];
  /** In the first buffer: bytes before this were taken. */
  #start = 0;
  /** In the last buffer: bytes up to here are filled. */
  #end = 0;
  #count = 0;

  constructor(pool: BufferPool) {
    this.#pool = pool;
  }

  get count(): number {
    return this.#count;
  }

  append(from: SharedMemory, offset: number, sizeBytes: number): void {
    const { bufferBytes } = this.#pool;
    let done = 0;
    while (done < sizeBytes) {
      if (this.#buffers.length === 0 || this.#end === bufferBytes) {
        this.#buffers.push(this.#pool.take());
        this.#end = 0;
      }
      const to = this.#buffers[this.#buffers.length - 1];
      const piece = Math.min(sizeBytes - done, bufferBytes - this.#end);
      copyMemory(to.memory, to.offset + this.#end, from, offset + done, piece);
      this.#end += piece;
      done += piece;
    }
    this.#count += sizeBytes;
  }

  /** Memory of the first bytes that lie together; `offset` and `size` are of the same bytes. */
  get memory(): SharedMemory {
    return this.#buffers[0].memory;
  }

  get offset(): number {
    return this.#buffers[0].offset + this.#start;
  }

  get size(): number {
    if (this.#buffers.length === 0) return 0;
    return (this.#buffers.length === 1 ? this.#end : this.#pool.bufferBytes) - this.#start;
  }

  take(sizeBytes: number): void {
    this.#count -= sizeBytes;
    this.#start += sizeBytes;
    const isEmpty = this.#start === (this.#buffers.length === 1 ? this.#end : this.#pool.bufferBytes);
    if (!isEmpty) return;
    const first = this.#buffers.shift();
    if (first !== undefined) this.#pool.give(first);
    this.#start = 0;
    if (this.#buffers.length === 0) this.#end = 0;
  }

  clear(): void {
    for (const buffer of this.#buffers) this.#pool.give(buffer);
    this.#buffers.length = 0;
    this.#start = 0;
    this.#end = 0;
    this.#count = 0;
  }
}
