// The writing end of a stream: plain memory, or blocks, or a Node or web stream for programs that must not block.

import type { Writable } from 'node:stream';
import type { WritableStream } from 'node:stream/web';
import { UsageError } from '../../errors.ts';
import type { PagerCounters } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import { BlockWriter } from './block-writer.ts';
import type { Carrier } from './carrier.ts';
import { nodeWritable } from './node-streams.ts';
import type { StreamOptions } from './options.ts';
import { Side } from './side.ts';
import { webWritable } from './web-streams.ts';
import type { ArrayType } from './window.ts';

/** What an end may know besides: `peer` is a unix socket whose closing means that the other process has gone. */
export interface EndOptions extends StreamOptions {
  readonly peer?: number | undefined;
}

/**
 * A program uses it in one form: the window (`bytes`, `array`, `view`), `blocks()`, `writable()` or `webWritable()`.
 * When the stream fails, writes to the window go nowhere, `done()` rejects and the next call throws a VortexError.
 */
export class Producer implements AsyncDisposable {
  readonly #side: Side;
  #blocks: BlockWriter | undefined;
  #isFinished = false;

  /** Takes queue and carrier over, and closes them. */
  constructor(queue: BlockQueue, options: EndOptions, carrier: Carrier) {
    this.#side = new Side({ role: 'producer', queue, options, carrier, peer: options.peer });
  }

  /** Undefined while nobody knows: until `finish`. */
  get sizeBytes(): number | undefined {
    this.#side.throwIfFailed();
    return this.#side.queue.sizeBytes;
  }

  /** The whole stream as memory, made on first use. Touching it may block the thread until the pool has room. */
  get bytes(): Uint8Array<ArrayBuffer> {
    return this.array(Uint8Array<ArrayBuffer>);
  }

  /** The whole stream as elements, from the first on. */
  array<T>(type: ArrayType<T>): T {
    return this.#side.window().array(type);
  }

  /** Part of it: past 2^31 elements one array is slow in V8, several are not. */
  view<T>(type: ArrayType<T>, firstElement: number, count: number): T {
    return this.#side.window().view(type, firstElement, count);
  }

  /**
   * Whether system calls (fs.readSync, sockets) may write into the window as well. One call should cover no more than
   * `revisitBlocks` blocks: some look at all pages first and come back to copy.
   */
  get servesSystemCalls(): boolean {
    return this.#side.window().servesSystemCalls;
  }

  /** What the pager did so far; undefined in other forms. */
  get counters(): PagerCounters | undefined {
    return this.#side.openWindow?.counters;
  }

  /** The error with which the stream has failed, if it has. */
  get failure(): Error | undefined {
    return this.#side.failure;
  }

  blocks(): BlockWriter {
    this.#side.choose('blocks');
    return this.#makeBlocks();
  }

  writable(): Writable {
    this.#side.choose('node stream');
    return nodeWritable(this.#makeBlocks(), () => this.close());
  }

  webWritable(): WritableStream<Uint8Array> {
    this.#side.choose('web stream');
    return webWritable(this.#makeBlocks(), () => this.close());
  }

  /** All is written: commits the last block. The size must be given, if it was not before. Touch nothing afterwards. */
  finish(sizeBytes?: number): void {
    this.#side.throwIfFailed();
    const { queue, openWindow } = this.#side;
    const known = queue.sizeBytes;
    const size = sizeBytes ?? known ?? this.#blocks?.writtenBytes;
    if (size === undefined) throw new UsageError('finish a stream of unknown length: say how long it is');
    if (known !== undefined && known !== size) {
      throw new UsageError(`finish a stream at ${size} bytes: it was opened with ${known}`);
    }
    if (this.#isFinished) return;
    if (this.#blocks !== undefined) this.#blocks.finish(size);
    else this.#finishWindow(size, openWindow === undefined ? 0 : this.#side.options.maxSizeBytes);
    this.#isFinished = true;
  }

  /** Resolves when the consumer has everything; rejects when the stream fails. Call `finish` before. */
  async done(): Promise<void> {
    await this.#side.untilComplete();
  }

  /**
   * Frees everything. A stream that is not finished fails at the other end; so does one whose end was never written and
   * did not fit into the pool any more: wait for `done` there.
   */
  async close(): Promise<void> {
    const { queue } = this.#side;
    const isThrough = (): boolean => queue.totalBlocks !== undefined && queue.committed >= queue.totalBlocks;
    await this.#side.close(this.#isFinished || (!this.#side.isClosed && isThrough()), isThrough);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #makeBlocks(): BlockWriter {
    this.#blocks = new BlockWriter(this.#side);
    return this.#blocks;
  }

  /** What was never touched arrives as zeroes: a program may finish without having written at all. */
  #finishWindow(sizeBytes: number, maxBytes: number): void {
    const { queue } = this.#side;
    if (queue.sizeBytes === undefined && sizeBytes > maxBytes) {
      throw new UsageError(`finish a stream at ${sizeBytes} bytes: its window has ${maxBytes} (see maxSizeBytes)`);
    }
    const window = this.#side.window();
    if (queue.sizeBytes === undefined) queue.announceSize(sizeBytes);
    if (sizeBytes === 0) queue.commit(0);
    else window.finish(Math.ceil(sizeBytes / queue.blockBytes));
  }
}
