// The reading end of a stream: plain memory, or blocks, or a Node or web stream for programs that must not block.

import type { Readable } from 'node:stream';
import type { ReadableStream } from 'node:stream/web';
import type { PagerCounters } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import { BlockReader } from './block-reader.ts';
import type { Carrier } from './carrier.ts';
import { nodeReadable } from './node-streams.ts';
import type { EndOptions } from './producer.ts';
import { Side } from './side.ts';
import { webReadable } from './web-streams.ts';
import type { ArrayType } from './window.ts';

/**
 * A program uses it in one form: the window (`bytes`, `array`, `view`), `blocks()`, `readable()` or `webReadable()`.
 * When the stream fails, the window shows zeroes, `done()` rejects and the next call throws a VortexError.
 */
export class Consumer implements AsyncDisposable {
  readonly #side: Side;

  /** Takes queue and carrier over, and closes them. */
  constructor(queue: BlockQueue, options: EndOptions, carrier: Carrier) {
    this.#side = new Side({ role: 'consumer', queue, options, carrier, peer: options.peer });
  }

  /** Undefined while nobody knows: the producer may say it only when it finishes. */
  get sizeBytes(): number | undefined {
    this.#side.throwIfFailed();
    return this.#side.queue.sizeBytes;
  }

  /** The whole stream as memory, made on first use. Touching it blocks the thread until the bytes are there. */
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
   * For a stream of unknown length: blocks the thread until the byte at `offset` is there (true), or is known to lie
   * past the end (false). Throws when the stream fails.
   */
  reaches(offset: number): boolean {
    this.#side.window();
    const { queue } = this.#side;
    let isThere = false;
    queue.sleepUntil(() => {
      this.#side.throwIfFailed();
      const { sizeBytes } = queue;
      isThere = sizeBytes === undefined ? queue.committed * queue.blockBytes > offset : offset < sizeBytes;
      return isThere || sizeBytes !== undefined;
    });
    return isThere;
  }

  /**
   * Whether system calls (fs.writeSync, sockets) may read from the window as well. One call should cover no more than
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

  blocks(): BlockReader {
    this.#side.choose('blocks');
    return new BlockReader(this.#side);
  }

  readable(): Readable {
    this.#side.choose('node stream');
    return nodeReadable(new BlockReader(this.#side), () => this.close());
  }

  webReadable(): ReadableStream<Uint8Array> {
    this.#side.choose('web stream');
    return webReadable(new BlockReader(this.#side), () => this.close());
  }

  /**
   * The program has read what it wants: gives back what the window holds, lets the rest of the stream pass unread, and
   * resolves when all of it is through. Rejects when the stream fails.
   */
  async done(): Promise<void> {
    this.#side.throwIfFailed();
    this.#side.openWindow?.finish(Number.MAX_SAFE_INTEGER);
    await this.#side.untilComplete();
  }

  /** Frees everything. A stream that was not read to its end fails at the other end. */
  async close(): Promise<void> {
    if (this.#side.isClosed) return;
    const { queue, openWindow } = this.#side;
    const isAtEnd = this.#hasReachedEnd();
    if (isAtEnd) openWindow?.finish(Number.MAX_SAFE_INTEGER);
    await this.#side.close(isAtEnd || queue.isComplete, () => queue.isComplete);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** All is here, and the program has been in the last block. */
  #hasReachedEnd(): boolean {
    const { queue, openWindow } = this.#side;
    const { totalBlocks } = queue;
    const top = openWindow?.counters?.topBlock ?? -1;
    return totalBlocks !== undefined && queue.committed >= totalBlocks && top >= totalBlocks - 1;
  }
}
