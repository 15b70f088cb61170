// The window: a stream as one long ArrayBuffer whose pages come and go by themselves.

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

export interface WindowParts {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: CheckedOptions;
  /** A unix socket whose closing means that the other process has gone. */
  readonly peer?: number | undefined;
}

export class Window implements Disposable {
  /** Signalled once when all blocks are given back, and once when the stream fails. */
  readonly notice: EventFd;
  readonly #lengthBytes: number;
  readonly #pager: Pager | undefined;
  readonly #buffer: ArrayBuffer;

  static open(parts: WindowParts): Window {
    checkTerminable();
    using undo = new DisposableStack();
    const notice = undo.use(EventFd.create());
    const { queue, options } = parts;
    const lengthBytes = queue.sizeBytes ?? options.maxSizeBytes;
    // A stream without bytes has nothing that could be touched.
    const pager = lengthBytes === 0 ? undefined : undo.use(startPager(parts, lengthBytes, notice));
    const window = new Window(lengthBytes, notice, pager);
    undo.move();
    return window;
  }

  private constructor(lengthBytes: number, notice: EventFd, pager: Pager | undefined) {
    this.#lengthBytes = lengthBytes;
    this.notice = notice;
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

  /** All whole elements. */
  array<T>(type: ArrayType<T>): T {
    return this.view(type, 0, Math.floor(this.#lengthBytes / type.BYTES_PER_ELEMENT));
  }

  /** The program has touched it for the last time: blocks below `end` go to the other side. */
  finish(end: number): void {
    this.#pager?.finish(end);
  }

  /** Every view has length 0 from now on. Wait for asynchronous system calls on them before. */
  close(): void {
    this.#pager?.close();
    this.notice.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function startPager({ role, queue, options, peer }: WindowParts, lengthBytes: number, notice: EventFd): Pager {
  const isProducer = role === 'producer';
  return Pager.start({
    role,
    pool: queue.pool.fd,
    ledger: queue.ledger.fd,
    ownEvent: isProducer ? queue.writable.fd : queue.readable.fd,
    otherEvent: isProducer ? queue.readable.fd : queue.writable.fd,
    notice: notice.fd,
    peer,
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
