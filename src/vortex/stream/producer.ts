// The writing end of a stream: plain memory, or blocks, or a Node or web stream for programs that must not block.

import type { Writable } from 'node:stream';
import type { WritableStream } from 'node:stream/web';
import { UsageError } from '../../errors.ts';
import type { PagerCounters } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import { BlockWriter } from './block-writer.ts';
import type { Connection } from './connection.ts';
import { nodeWritable } from './node-streams.ts';
import type { StreamOptions } from './options.ts';
import { StreamEnd } from './stream-end.ts';
import { webWritable } from './web-streams.ts';
import type { ArrayType } from './window.ts';

/**
 * A program uses it in one form: the window (`bytes`, `array`, `view`), `blocks()`, `writable()` or `webWritable()`.
 * When the stream fails, writes to the window go nowhere, `done()` rejects and the next call throws a VortexError.
 */
export class Producer implements AsyncDisposable {
  readonly #end: StreamEnd;
  #blocks: BlockWriter | undefined;
  #isFinished = false;

  /** Takes over queue and connection, and closes them. */
  constructor(queue: BlockQueue, options: StreamOptions, connection: Connection) {
    this.#end = new StreamEnd({ role: 'producer', queue, options, connection });
  }

  /** Undefined until it is known: at the latest after `finish`. */
  get sizeBytes(): number | undefined {
    this.#end.throwIfFailed();
    return this.#end.queue.sizeBytes;
  }

  /** The whole stream as memory, made on first use. Touching it may block the thread until the pool has room. */
  get bytes(): Uint8Array<ArrayBuffer> {
    return this.array(Uint8Array<ArrayBuffer>);
  }

  /** The whole stream as elements, from the first on. */
  array<T>(type: ArrayType<T>): T {
    return this.#end.window().array(type);
  }

  /** A part of the stream: one array of more than 2^31 elements is slow in V8, several smaller ones are not. */
  view<T>(type: ArrayType<T>, firstElement: number, count: number): T {
    return this.#end.window().view(type, firstElement, count);
  }

  /**
   * Whether system calls (fs.readSync, sockets) may write into the window as well. One call should cover no more than
   * `revisitBlocks` blocks: some touch all pages first and come back to copy.
   */
  get servesSystemCalls(): boolean {
    return this.#end.window().servesSystemCalls;
  }

  /** What the pager did so far; undefined in other forms. */
  get counters(): PagerCounters | undefined {
    return this.#end.openWindow?.counters;
  }

  /** The error with which the stream has failed, if it has. */
  get failure(): Error | undefined {
    return this.#end.failure;
  }

  blocks(): BlockWriter {
    this.#end.choose('blocks');
    return this.#makeBlocks();
  }

  writable(): Writable {
    this.#end.choose('node stream');
    return nodeWritable(this.#makeBlocks(), () => this.close());
  }

  webWritable(): WritableStream<Uint8Array> {
    this.#end.choose('web stream');
    return webWritable(this.#makeBlocks(), () => this.close());
  }

  /**
   * The program has written everything: commits the last block. The size must be given unless it was given before.
   * The window must not be touched afterwards.
   */
  finish(sizeBytes?: number): void {
    this.#end.throwIfFailed();
    const { queue, openWindow } = this.#end;
    const known = queue.sizeBytes;
    const size = sizeBytes ?? known ?? this.#blocks?.writtenBytes;
    if (size === undefined)
      throw new UsageError('finish a stream of unknown length: pass its size in bytes to finish()');
    if (known !== undefined && known !== size) {
      throw new UsageError(`finish a stream at ${size} bytes: it was opened with ${known}`);
    }
    if (this.#isFinished) return;
    if (this.#blocks !== undefined) this.#blocks.finish(size);
    else this.#finishWindow(size, openWindow === undefined ? 0 : this.#end.options.maxSizeBytes);
    this.#isFinished = true;
  }

  /** Resolves when the consumer has everything; rejects when the stream fails. Call `finish` before. */
  async done(): Promise<void> {
    await this.#end.untilComplete();
  }

  /**
   * Frees everything. A stream that is not finished fails at the other end. So does a finished one whose last blocks
   * were never touched and did not fit into the pool: wait for `done` before closing such a stream.
   */
  async close(): Promise<void> {
    const { queue } = this.#end;
    const isThrough = (): boolean => queue.totalBlocks !== undefined && queue.committed >= queue.totalBlocks;
    await this.#end.close(this.#isFinished || (!this.#end.isClosed && isThrough()), isThrough);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #makeBlocks(): BlockWriter {
    this.#blocks = new BlockWriter(this.#end);
    return this.#blocks;
  }

  /** Blocks that were never touched arrive as zeroes: a program may finish without having written at all. */
  #finishWindow(sizeBytes: number, maxBytes: number): void {
    const { queue } = this.#end;
    if (queue.sizeBytes === undefined && sizeBytes > maxBytes) {
      throw new UsageError(`finish a stream at ${sizeBytes} bytes: its window has ${maxBytes} (see maxSizeBytes)`);
    }
    const window = this.#end.window();
    if (queue.sizeBytes === undefined) queue.announceSize(sizeBytes);
    if (sizeBytes === 0) queue.commit(0);
    else window.finish(Math.ceil(sizeBytes / queue.blockBytes));
  }
}
