// What both ends of a stream offer to programs: the window, the counters of its pager, and the
// failure.

import type { PagerCounters } from '../../native/index.ts';
import { StreamEnd, type StreamEndParts } from './stream-end.ts';
import type { ArrayType } from './window.ts';

/** Closing an end before everything is through fails the stream at the other end. */
export abstract class ProgramEnd implements AsyncDisposable {
  protected readonly end: StreamEnd;

  /** Takes over queue and connection, and closes them. */
  constructor(parts: StreamEndParts) {
    this.end = new StreamEnd(parts);
  }

  /** Undefined until it is known: a producer may tell it only when it finishes. */
  get sizeBytes(): number | undefined {
    this.end.throwIfFailed();
    return this.end.queue.sizeBytes;
  }

  /**
   * The whole stream as memory, made on first use. Touching it blocks the thread until the pool has
   * room (producer) or the bytes have arrived (consumer).
   */
  get bytes(): Uint8Array<ArrayBuffer> {
    return this.array(Uint8Array<ArrayBuffer>);
  }

  /** The whole stream as elements, from the first on. */
  array<T>(type: ArrayType<T>): T {
    return this.end.window().array(type);
  }

  /**
   * A part of the stream: one array of more than 2^31 elements is slow in V8, several smaller ones
   * are not.
   */
  view<T>(type: ArrayType<T>, firstElement: number, count: number): T {
    return this.end.window().view(type, firstElement, count);
  }

  /**
   * Whether system calls (fs.readSync, fs.writeSync, sockets) may use the window as well. One call
   * should cover no more than `revisitBlocks` blocks: some touch all pages first and come back to
   * copy.
   */
  get servesSystemCalls(): boolean {
    return this.end.window().servesSystemCalls;
  }

  /** What the pager did so far; undefined in other forms. */
  get counters(): PagerCounters | undefined {
    return this.end.openWindow?.counters;
  }

  /** The error with which the stream has failed, if it has. */
  get failure(): Error | undefined {
    return this.end.failure;
  }

  /** Resolves when everything is through; rejects when the stream fails. */
  abstract done(): Promise<void>;

  /** Frees everything. */
  abstract close(): Promise<void>;

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
