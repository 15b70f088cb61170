// The reading end of a stream: plain memory, or blocks, or a Node or web stream for programs that
// must not block.

import type { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import type { BlockQueue } from './block-queue.ts';
import { BlockReader } from './block-reader.ts';
import type { Connection } from './connection.ts';
import { nodeReadable } from './node-streams.ts';
import type { StreamOptions } from './options.ts';
import { ProgramEnd } from './program-end.ts';
import { webReadable } from './web-streams.ts';

/**
 * A program uses it in one form: the window (`bytes`, `array`, `view`), `blocks()`, `readable()` or
 * `webReadable()`. When the stream fails, the window shows zeroes, `done()` rejects and the next
 * call throws a VortexError.
 */
export class Consumer extends ProgramEnd {
  constructor(queue: BlockQueue, options: StreamOptions, connection: Connection) {
    super({ role: 'consumer', queue, options, connection });
  }

  /**
   * For a stream of unknown length: blocks the thread until the byte at `offset` has arrived
   * (true), or is known to lie past the end (false). Throws when the stream fails.
   */
  reaches(offset: number): boolean {
    this.end.window();
    const { queue } = this.end;
    let isThere = false;
    queue.sleepUntil(() => {
      this.end.throwIfFailed();
      const { sizeBytes } = queue;
      isThere = sizeBytes === undefined ? queue.committed * queue.blockBytes > offset : offset < sizeBytes;
      return isThere || sizeBytes !== undefined;
    });
    return isThere;
  }

  blocks(): BlockReader {
    this.end.choose('blocks');
    return new BlockReader(this.end);
  }

  readable(): Readable {
    this.end.choose('node stream');
    return nodeReadable(new BlockReader(this.end), () => this.close());
  }

  webReadable(): ReadableStream<Uint8Array> {
    this.end.choose('web stream');
    return webReadable(new BlockReader(this.end), () => this.close());
  }

  /**
   * The program has read what it wants: releases the blocks of the window, lets the rest of the
   * stream pass unread, and resolves when everything is through. Rejects when the stream fails.
   */
  override async done(): Promise<void> {
    this.end.throwIfFailed();
    this.end.openWindow?.finish(Number.MAX_SAFE_INTEGER);
    await this.end.untilComplete();
  }

  /** Frees everything. A stream that was not read to its end fails at the other end. */
  override async close(): Promise<void> {
    if (this.end.isClosed) return;
    const { queue, openWindow } = this.end;
    const isAtEnd = this.#hasReachedEnd();
    if (isAtEnd) openWindow?.finish(Number.MAX_SAFE_INTEGER);
    await this.end.close(isAtEnd || queue.isComplete, () => queue.isComplete);
  }

  /** Everything has arrived, and the program has touched the last block. */
  #hasReachedEnd(): boolean {
    const { queue, openWindow } = this.end;
    const { totalBlocks } = queue;
    const top = openWindow?.counters?.topBlock ?? -1;
    return totalBlocks !== undefined && queue.committed >= totalBlocks && top >= totalBlocks - 1;
  }
}
