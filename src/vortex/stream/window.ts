// The window: a stream as one long ArrayBuffer whose pages come and go by page faults.
//
// The page faults are served by the pager, a native thread: native/pager-thread.c, started through
// src/native/pager.ts.

import { UsageError } from '../../errors.ts';
import { EventFd, Pager, type PagerCounters } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import type { Role } from './failure.ts';
import type { CheckedOptions } from './options.ts';
import { checkTerminable, owners } from './termination.ts';

/** Float64Array, Uint8Array and their kin. */
export interface ArrayType<T> {
  readonly BYTES_PER_ELEMENT: number;
  new (buffer: ArrayBuffer, byteOffset: number, length: number): T;
}

interface WindowParts {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: CheckedOptions;
  /** A socket that hangs up when the other end has gone. */
  readonly lifelineFd?: number | undefined;
}

export class Window implements Disposable {
  /** The pager signals it once when everything is through, and once when the stream fails. */
  readonly doorbell: EventFd;
  readonly #lengthBytes: number;
  readonly #pager: Pager | undefined;
  readonly #buffer: ArrayBuffer;

  static open(parts: WindowParts): Window {
    checkTerminable();
    using undo = new DisposableStack();
    const doorbell = undo.use(EventFd.create());
    const { queue, options } = parts;
    const lengthBytes = queue.sizeBytes ?? options.maxSizeBytes;
    // A stream of length 0 has nothing to touch, and needs no pager.
    const pager = lengthBytes === 0 ? undefined : undo.use(startPager(parts, lengthBytes, doorbell));
    const window = new Window(lengthBytes, doorbell, pager);
    undo.move();
    return window;
  }

  private constructor(lengthBytes: number, doorbell: EventFd, pager: Pager | undefined) {
    this.#lengthBytes = lengthBytes;
    this.doorbell = doorbell;
    this.#pager = pager;
    this.#buffer = pager?.buffer ?? new ArrayBuffer(0);
  }

  get servesSystemCalls(): boolean {
    return this.#pager?.servesSystemCalls ?? true;
  }

  get counters(): PagerCounters | undefined {
    return this.#pager?.counters;
  }

  view<T>(type: ArrayType<T>, first: number, count: number): T {
    const size = type.BYTES_PER_ELEMENT;
    const most = Math.floor(this.#lengthBytes / size);
    if (
      !Number.isSafeInteger(first) ||
      !Number.isSafeInteger(count) ||
      first < 0 ||
      count < 0 ||
      first + count > most
    ) {
      throw new UsageError(`a view of ${count} elements from ${first}: the stream has ${most} of ${size} bytes`);
    }
    return new type(this.#buffer, first * size, count);
  }

  /** The whole stream; bytes after the last whole element are left out. */
  array<T>(type: ArrayType<T>): T {
    return this.view(type, 0, Math.floor(this.#lengthBytes / type.BYTES_PER_ELEMENT));
  }

  /** The program does not touch the window any more: blocks below `end` go to the other end. */
  finish(end: number): void {
    this.#pager?.finish(end);
  }

  /**
   * Every view has length 0 from now on. Asynchronous system calls on a view must be over before.
   */
  close(): void {
    this.#pager?.close();
    this.doorbell.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function startPager({ role, queue, options, lifelineFd }: WindowParts, lengthBytes: number, doorbell: EventFd): Pager {
  const isProducer = role === 'producer';
  return Pager.start({
    role,
    pool: queue.pool.fd,
    ledger: queue.ledger.fd,
    ownEvent: isProducer ? queue.writable.fd : queue.readable.fd,
    otherEvent: isProducer ? queue.readable.fd : queue.writable.fd,
    doorbell: doorbell.fd,
    lifelineFd,
    windowBytes: Math.ceil(lengthBytes / queue.blockBytes) * queue.blockBytes,
    blockBytes: queue.blockBytes,
    poolBlocks: queue.poolBlocks,
    revisitBlocks: options.revisitBlocks,
    readAheadBlocks: options.readAheadBlocks,
    timeoutMs: options.timeoutMs,
    doesClear: options.clearBlocks,
    owners,
  });
}
