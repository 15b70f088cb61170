// A pool of buffers for bytes that wait: pieces of shared memory, borrowed while they are needed;
// spare memory goes back to the kernel.

import { SharedMemory } from '../native/index.ts';

const DEFAULT_BUFFER_BYTES = 256 * 1024;
const BUFFERS_PER_CHUNK = 8;

/** One piece. Made once with its chunk, so that taking and giving allocate nothing. */
export interface PooledBuffer {
  readonly memory: SharedMemory;
  readonly offset: number;
  readonly chunk: Chunk;
}

interface Chunk {
  readonly memory: SharedMemory;
  readonly free: PooledBuffer[];
}

export class BufferPool implements Disposable {
  readonly bufferBytes: number;
  readonly #chunks: Chunk[] = [];
  #freeCount = 0;

  constructor(bufferBytes = DEFAULT_BUFFER_BYTES) {
    this.bufferBytes = bufferBytes;
  }

  get heldBytes(): number {
    return this.#chunks.length * BUFFERS_PER_CHUNK * this.bufferBytes;
  }

  get borrowedCount(): number {
    return this.#chunks.length * BUFFERS_PER_CHUNK - this.#freeCount;
  }

  take(): PooledBuffer {
    if (this.#freeCount === 0) this.#grow();
    for (const chunk of this.#chunks) {
      const buffer = chunk.free.pop();
      if (buffer === undefined) continue;
      this.#freeCount--;
      return buffer;
    }
    throw new Error('a pool that has free buffers has none');
  }

  give(buffer: PooledBuffer): void {
    const { chunk } = buffer;
    chunk.free.push(buffer);
    this.#freeCount++;
    // One chunk stays in reserve, or a single busy buffer could map and unmap one all the time.
    const isSpare = chunk.free.length === BUFFERS_PER_CHUNK && this.#freeCount >= 2 * BUFFERS_PER_CHUNK;
    if (isSpare) this.#drop(chunk);
  }

  close(): void {
    for (const chunk of this.#chunks) chunk.memory.close();
    this.#chunks.length = 0;
    this.#freeCount = 0;
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #grow(): void {
    const memory = SharedMemory.create({ sizeBytes: BUFFERS_PER_CHUNK * this.bufferBytes, name: 'buffers' });
    const chunk: Chunk = { memory, free: [] };
    for (let index = BUFFERS_PER_CHUNK - 1; index >= 0; index--) {
      chunk.free.push({ memory, offset: index * this.bufferBytes, chunk });
    }
    this.#chunks.push(chunk);
    this.#freeCount += BUFFERS_PER_CHUNK;
  }

  #drop(chunk: Chunk): void {
    this.#chunks.splice(this.#chunks.indexOf(chunk), 1);
    this.#freeCount -= BUFFERS_PER_CHUNK;
    chunk.memory.close();
  }
}
