// The writing end of a stream: plain memory, or blocks, or a Node or web stream for programs that
// must not block.

import type { Writable } from 'node:stream';
import type { WritableStream } from 'node:stream/web';
import { UsageError } from '../../errors.ts';
import type { BlockQueue } from './block-queue.ts';
import { BlockWriter } from './block-writer.ts';
import type { Connection } from './connection.ts';
import { nodeWritable } from './node-streams.ts';
import type { StreamOptions } from './options.ts';
import { ProgramEnd } from './program-end.ts';
import { webWritable } from './web-streams.ts';

/**
 * A program uses it in one form: the window (`bytes`, `array`, `view`), `blocks()`, `writable()` or
 * `webWritable()`. When the stream fails, writes to the window go nowhere, `done()` rejects and the
 * next call throws a VortexError.
 */
export class Producer extends ProgramEnd {
  #blocks: BlockWriter | undefined;
  #isFinished = false;

  constructor(queue: BlockQueue, options: StreamOptions, connection: Connection) {
    super({ role: 'producer', queue, options, connection });
  }

  blocks(): BlockWriter {
    this.end.choose('blocks');
    return this.#makeBlocks();
  }

  writable(): Writable {
    this.end.choose('node stream');
    return nodeWritable(this.#makeBlocks(), () => this.close());
  }

  webWritable(): WritableStream<Uint8Array> {
    this.end.choose('web stream');
    return webWritable(this.#makeBlocks(), () => this.close());
  }

  /**
   * The program has written everything: commits the last block. The size must be given unless it
   * was given before. The window must not be touched afterwards.
   */
  finish(sizeBytes?: number): void {
    this.end.throwIfFailed();
    const { queue, openWindow } = this.end;
    const known = queue.sizeBytes;
    const size = sizeBytes ?? known ?? this.#blocks?.writtenBytes;
    if (size === undefined)
      throw new UsageError('finish a stream of unknown length: pass its size in bytes to finish()');
    if (known !== undefined && known !== size) {
      throw new UsageError(`finish a stream at ${size} bytes: it was opened with ${known}`);
    }
    if (this.#isFinished) return;
    if (this.#blocks !== undefined) this.#blocks.finish(size);
    else this.#finishWindow(size, openWindow === undefined ? 0 : this.end.options.maxSizeBytes);
    this.#isFinished = true;
  }

  /**
   * Resolves when the consumer has everything; rejects when the stream fails. Call `finish` before.
   */
  override async done(): Promise<void> {
    await this.end.untilComplete();
  }

  /**
   * Frees everything. A stream that is not finished fails at the other end. So does a finished one
   * whose last blocks were never touched and did not fit into the pool: wait for `done` before
   * closing such a stream.
   */
  override async close(): Promise<void> {
    const { queue } = this.end;
    const isThrough = (): boolean => queue.totalBlocks !== undefined && queue.committed >= queue.totalBlocks;
    await this.end.close(this.#isFinished || (!this.end.isClosed && isThrough()), isThrough);
  }

  #makeBlocks(): BlockWriter {
    this.#blocks = new BlockWriter(this.end);
    return this.#blocks;
  }

  /**
   * Blocks that were never touched arrive as zeroes: a program may finish without having written at
   * all.
   */
  #finishWindow(sizeBytes: number, maxBytes: number): void {
    const { queue } = this.end;
    if (queue.sizeBytes === undefined && sizeBytes > maxBytes) {
      throw new UsageError(`finish a stream at ${sizeBytes} bytes: its window has ${maxBytes} (see maxSizeBytes)`);
    }
    const window = this.end.window();
    if (queue.sizeBytes === undefined) queue.announceSize(sizeBytes);
    if (sizeBytes === 0) queue.commit(0);
    else window.finish(Math.ceil(sizeBytes / queue.blockBytes));
  }
}
