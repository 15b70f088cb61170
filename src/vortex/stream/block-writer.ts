// The producer's end block by block: the program fills each block in place in the pool, and nothing
// blocks its thread.

import { UsageError } from '../../errors.ts';
import type { StreamEnd } from './stream-end.ts';

export interface WritableBlock {
  readonly index: number;
  /**
   * The block in the pool, with the bytes that an earlier block left there. Of length 0 once
   * committed.
   */
  readonly bytes: Uint8Array;
  /** Gives the block to the consumer. If it is not full, the stream ends with it. */
  commit(usedBytes?: number): void;
}

export class BlockWriter {
  readonly #end: StreamEnd;
  #next = 0;
  #released = 0;
  #isOut = false;
  #writtenBytes = 0;
  #isFinished = false;

  constructor(end: StreamEnd) {
    this.#end = end;
  }

  /** Bytes of all committed blocks. */
  get writtenBytes(): number {
    return this.#writtenBytes;
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  /** Waits until the pool has room. Commit each block before you ask for the next. */
  async next(): Promise<WritableBlock> {
    const { queue } = this.#end;
    this.#end.throwIfFailed();
    const { sizeBytes } = queue;
    if (this.#isOut) throw new UsageError('next block of a stream: commit the block before it first');
    if (this.#isFinished || (sizeBytes !== undefined && this.#writtenBytes >= sizeBytes)) {
      throw new UsageError(`next block of a stream: all ${this.#writtenBytes} bytes are written`);
    }
    this.#isOut = true;
    const index = this.#next;
    try {
      await this.#end.until(() => {
        this.#released = queue.releasedSince(this.#released, this.#next);
        return index < this.#released + queue.poolBlocks;
      }, this.#end.options.timeoutMs);
    } catch (error) {
      this.#isOut = false;
      throw error;
    }
    const roomBytes = Math.min(queue.blockBytes, (sizeBytes ?? Number.MAX_SAFE_INTEGER) - this.#writtenBytes);
    return this.#block(index, roomBytes);
  }

  /** Ends the stream after the last committed block. */
  finish(sizeBytes = this.#end.queue.sizeBytes ?? this.#writtenBytes): void {
    if (this.#isFinished && sizeBytes === this.#writtenBytes) return;
    if (this.#isOut || sizeBytes !== this.#writtenBytes) {
      throw new UsageError(`finish a stream at ${sizeBytes} bytes: ${this.#writtenBytes} are committed`);
    }
    this.#isFinished = true;
    this.#end.queue.finish(sizeBytes);
  }

  #block(index: number, roomBytes: number): WritableBlock {
    const { queue } = this.#end;
    let bytes = new Uint8Array(queue.pool.buffer, queue.offsetOf(index), roomBytes);
    return {
      index,
      get bytes() {
        return bytes;
      },
      commit: (usedBytes = roomBytes) => {
        if (index !== this.#next || !this.#isOut)
          throw new UsageError(`commit block ${index}: it is committed already`);
        this.#checkUsed(usedBytes, roomBytes);
        this.#end.throwIfFailed();
        bytes = new Uint8Array(0);
        this.#commit(usedBytes);
      },
    };
  }

  #checkUsed(usedBytes: number, roomBytes: number): void {
    const isWhole = this.#end.queue.sizeBytes === undefined || usedBytes === roomBytes;
    if (isWhole && Number.isInteger(usedBytes) && usedBytes >= 0 && usedBytes <= roomBytes) return;
    throw new UsageError(
      `commit ${usedBytes} bytes of a block of ${roomBytes}: the count must be from 0 to ${roomBytes}, and all of it where the size of the stream is known`,
    );
  }

  #commit(usedBytes: number): void {
    const { queue } = this.#end;
    this.#isOut = false;
    this.#next++;
    this.#writtenBytes += usedBytes;
    const isLast = usedBytes < queue.blockBytes || this.#writtenBytes === queue.sizeBytes;
    this.#isFinished = isLast;
    if (isLast) queue.finish(this.#writtenBytes);
    else queue.commit(this.#next);
  }
}
