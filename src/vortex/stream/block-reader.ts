// The consumer's end block by block: each is read in place in the pool, and given back when the program says so.

import { MillraceError } from '../../errors.ts';
import type { Side } from './side.ts';

export interface ReadableBlock {
  readonly index: number;
  /** The block in the pool; only good until `release`, of length 0 afterwards. */
  readonly bytes: Uint8Array;
  /** Gives the block back. In any order; twice is harmless. */
  release(): void;
}

export class BlockReader implements AsyncIterable<ReadableBlock> {
  readonly #side: Side;
  #next = 0;
  #committed = 0;
  #released = 0;
  /** Given back before one that is still held. */
  readonly #early = new Set<number>();

  constructor(side: Side) {
    this.#side = side;
  }

  /** Undefined at the end of the stream. Holding all blocks of the pool and asking for more waits for ever. */
  async next(): Promise<ReadableBlock | undefined> {
    const { queue } = this.#side;
    const index = this.#next;
    let total: number | undefined;
    await this.#side.until(() => {
      // The size before the counter: it is announced before the last block is committed.
      total = queue.totalBlocks;
      this.#committed = queue.committedSince(this.#committed, this.#released);
      return index < this.#committed || index === total;
    }, this.#side.options.timeoutMs);
    if (index === total) return undefined;
    this.#next = index + 1;
    return this.#block(index);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<ReadableBlock, void, void> {
    for (;;) {
      const block = await this.next();
      if (block === undefined) return;
      yield block;
    }
  }

  #block(index: number): ReadableBlock {
    const { queue } = this.#side;
    const restBytes = (queue.sizeBytes ?? Number.MAX_SAFE_INTEGER) - index * queue.blockBytes;
    const sizeBytes = Math.max(0, Math.min(queue.blockBytes, restBytes));
    let bytes = new Uint8Array(queue.pool.buffer, queue.offsetOf(index), sizeBytes);
    let isHeld = true;
    return {
      index,
      get bytes() {
        return bytes;
      },
      release: () => {
        if (!isHeld) return;
        if (this.#side.isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', 'this consumer is closed');
        isHeld = false;
        bytes = new Uint8Array(0);
        this.#release(index);
      },
    };
  }

  #release(index: number): void {
    this.#early.add(index);
    const before = this.#released;
    while (this.#early.delete(this.#released)) this.#released++;
    if (this.#released > before) this.#side.queue.release(this.#released);
  }
}
