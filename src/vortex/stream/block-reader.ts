// The consumer's end block by block: the program reads each block in place in the pool, and
// releases it.

import { MillraceError } from '../../errors.ts';
import type { StreamEnd } from './stream-end.ts';

export interface ReadableBlock {
  readonly index: number;
  /** The block in the pool; valid until `release`, of length 0 afterwards. */
  readonly bytes: Uint8Array;
  /**
   * Gives the block back to the producer. Blocks may be released in any order; releasing twice is
   * harmless.
   */
  release(): void;
}

export class BlockReader implements AsyncIterable<ReadableBlock> {
  readonly #end: StreamEnd;
  #next = 0;
  #committed = 0;
  #released = 0;
  /** Released blocks above one that is still held. */
  readonly #releasedEarly = new Set<number>();

  constructor(end: StreamEnd) {
    this.#end = end;
  }

  /**
   * Undefined at the end of the stream. A program that holds all blocks of the pool and asks for
   * more waits for ever.
   */
  async next(): Promise<ReadableBlock | undefined> {
    const { queue } = this.#end;
    const index = this.#next;
    let total: number | undefined;
    await this.#end.until(() => {
      // The size is read before the counter, because the producer announces it before it commits
      // the last block.
      total = queue.totalBlocks;
      this.#committed = queue.committedSince(this.#committed, this.#released);
      return index < this.#committed || index === total;
    }, this.#end.options.timeoutMs);
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
    const { queue } = this.#end;
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
        if (this.#end.isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', 'this consumer is closed');
        isHeld = false;
        bytes = new Uint8Array(0);
        this.#release(index);
      },
    };
  }

  #release(index: number): void {
    this.#releasedEarly.add(index);
    const before = this.#released;
    while (this.#releasedEarly.delete(this.#released)) this.#released++;
    if (this.#released > before) this.#end.queue.release(this.#released);
  }
}
