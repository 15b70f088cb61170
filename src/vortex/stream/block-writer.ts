// The producer's end block by block: each is filled in place in the pool, and nothing ever blocks the thread.

import { UsageError } from '../../errors.ts';
import type { Side } from './side.ts';

export interface WritableBlock {
  readonly index: number;
  /** The block in the pool: holds what an earlier block left there. Of length 0 once committed. */
  readonly bytes: Uint8Array;
  /** Gives the block to the consumer. With less than all of it the stream ends there. */
  commit(usedBytes?: number): void;
}

export class BlockWriter {
  readonly #side: Side;
  #next = 0;
  #released = 0;
  #isOut = false;
  #writtenBytes = 0;
  #isFinished = false;

  constructor(side: Side) {
    this.#side = side;
  }

  /** Whole blocks, and the last one perhaps not whole. */
  get writtenBytes(): number {
    return this.#writtenBytes;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Waits until the pool has room. One block at a time: commit it before the next. */
  async next(): Promise<WritableBlock> {
    const { queue } = this.#side;
    this.#side.throwIfFailed();
    const { sizeBytes } = queue;
    if (this.#isOut) throw new UsageError('next block of a stream: commit the one before first');
    if (this.#isFinished || (sizeBytes !== undefined && this.#writtenBytes >= sizeBytes)) {
      throw new UsageError(`next block of a stream: all ${this.#writtenBytes} bytes are written`);
    }
    this.#isOut = true;
    const index = this.#next;
    try {
      await this.#side.until(() => {
        this.#released = queue.releasedSince(this.#released, this.#next);
        return index < this.#released + queue.poolBlocks;
      }, this.#side.options.timeoutMs);
    } catch (error) {
      this.#isOut = false;
      throw error;
    }
    const roomBytes = Math.min(queue.blockBytes, (sizeBytes ?? Number.MAX_SAFE_INTEGER) - this.#writtenBytes);
    return this.#block(index, roomBytes);
  }

  /** Ends the stream after what is committed. */
  finish(sizeBytes = this.#side.queue.sizeBytes ?? this.#writtenBytes): void {
    if (this.#isFinished && sizeBytes === this.#writtenBytes) return;
    if (this.#isOut || sizeBytes !== this.#writtenBytes) {
      throw new UsageError(`finish a stream at ${sizeBytes} bytes: ${this.#writtenBytes} are committed`);
    }
    this.#isFinished = true;
    this.#side.queue.finish(sizeBytes);
  }

  #block(index: number, roomBytes: number): WritableBlock {
    const { queue } = this.#side;
    let bytes = new Uint8Array(queue.pool.buffer, queue.offsetOf(index), roomBytes);
    return {
      index,
      get bytes() {
        return bytes;
      },
      commit: (usedBytes = roomBytes) => {
        if (index !== this.#next || !this.#isOut) throw new UsageError(`commit block ${index}: it is committed`);
        this.#checkUsed(usedBytes, roomBytes);
        this.#side.throwIfFailed();
        bytes = new Uint8Array(0);
        this.#commit(usedBytes);
      },
    };
  }

  #checkUsed(usedBytes: number, roomBytes: number): void {
    const isWhole = this.#side.queue.sizeBytes === undefined || usedBytes === roomBytes;
    if (isWhole && Number.isInteger(usedBytes) && usedBytes >= 0 && usedBytes <= roomBytes) return;
    throw new UsageError(`commit ${usedBytes} bytes of a block of ${roomBytes}: the stream has a size to fill`);
  }

  #commit(usedBytes: number): void {
    const { queue } = this.#side;
    this.#isOut = false;
    this.#next++;
    this.#writtenBytes += usedBytes;
    const isLast = usedBytes < queue.blockBytes || this.#writtenBytes === queue.sizeBytes;
    this.#isFinished = isLast;
    if (isLast) queue.finish(this.#writtenBytes);
    else queue.commit(this.#next);
  }
}
