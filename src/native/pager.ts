// The memory of a Vortex window, and the native thread that serves its page faults
// (native/pager-thread.c).

import { UnsupportedError, UsageError } from '../errors.ts';
import { addon, type PagerHandle } from './addon.ts';
import { checkValue } from './result.ts';
import { createBestUserfault } from './userfault.ts';

/** How many threads the list of owners takes. */
const MAX_OWNERS = 8;

/** Descriptors are duplicated: those that were passed stay open. */
export interface PagerOptions {
  readonly role: 'producer' | 'consumer';
  /** Memory of the blocks and of the ledger, as src/vortex/stream/block-queue.ts lays it out. */
  readonly pool: number;
  readonly ledger: number;
  /** The doorbells of this end and of the other end. */
  readonly ownEvent: number;
  readonly otherEvent: number;
  /**
   * An eventfd for the thread that owns the window: signalled once when everything is through, and
   * once on failure.
   */
  readonly doorbell: number;
  /** A socket that hangs up when the other end has gone. */
  readonly lifelineFd?: number | undefined;
  /** A multiple of `blockBytes`. */
  readonly windowBytes: number;
  readonly blockBytes: number;
  readonly poolBlocks: number;
  readonly revisitBlocks: number;
  readonly readAheadBlocks: number;
  /** A fault that waits longer fails the stream; 0: no limit. */
  readonly timeoutMs: number;
  /** A producer's blocks are zeroed before it gets them again. */
  readonly doesClear: boolean;
  /** The ids of this thread and of those that may terminate it (`worker_threads.threadId`). */
  readonly owners: readonly number[];
}

export interface PagerCounters {
  readonly faults: number;
  readonly mappedBlocks: number;
  readonly sinkBlocks: number;
  /** The highest block the program has touched; -1 before. */
  readonly topBlock: number;
  /** Faults that had to wait for the other end. */
  readonly waits: number;
}

/**
 * Once closed, every view of `buffer` has length 0. A thread that ends without closing it fails the
 * stream.
 */
export class Pager implements Disposable {
  readonly buffer: ArrayBuffer;
  /**
   * Whether system calls may read and write the window; otherwise they answer EFAULT for what is
   * not there yet.
   */
  readonly servesSystemCalls: boolean;
  #handle: PagerHandle | undefined;
  #lastCounters: PagerCounters | undefined;

  static start(options: PagerOptions): Pager {
    const { fd, options: served } = userfaultOrReason();
    using userfault = fd;
    if (!userfault.handshake().has('missingShmem')) {
      throw new UnsupportedError('a stream as memory needs userfaultfd for shared memory (Linux 4.11 or newer)');
    }
    const owners = new Uint8Array(Int32Array.from(options.owners.slice(-MAX_OWNERS)).buffer);
    const started = addon.pagerStart(
      userfault.fd,
      options.pool,
      options.ownEvent,
      options.otherEvent,
      options.doorbell,
      options.lifelineFd ?? -1,
      options.ledger,
      options.windowBytes,
      options.blockBytes,
      options.poolBlocks,
      options.role === 'producer' ? 1 : 0,
      options.revisitBlocks,
      options.readAheadBlocks,
      options.timeoutMs,
      options.doesClear ? 1 : 0,
      owners,
    );
    const [handle, buffer] = checkValue(started, 'start a pager', `a window of ${options.windowBytes} bytes`);
    return new Pager(handle, buffer, served.faults === 'all');
  }

  private constructor(handle: PagerHandle, buffer: ArrayBuffer, servesSystemCalls: boolean) {
    this.#handle = handle;
    this.buffer = buffer;
    this.servesSystemCalls = servesSystemCalls;
  }

  /**
   * The program has touched the window for the last time: all blocks below `end` are given away as
   * soon as they can be.
   */
  finish(end: number): void {
    if (this.#handle === undefined) throw new UsageError('finish a window that is closed');
    addon.pagerFinish(this.#handle, end);
  }

  get counters(): PagerCounters {
    if (this.#handle === undefined && this.#lastCounters !== undefined) return this.#lastCounters;
    if (this.#handle === undefined) return { faults: 0, mappedBlocks: 0, sinkBlocks: 0, topBlock: -1, waits: 0 };
    const [faults, mappedBlocks, sinkBlocks, topBlock, waits] = addon.pagerCounters(this.#handle);
    return { faults, mappedBlocks, sinkBlocks, topBlock, waits };
  }

  close(): void {
    if (this.#handle === undefined) return;
    this.#lastCounters = this.counters;
    const handle = this.#handle;
    this.#handle = undefined;
    addon.pagerStop(handle, this.buffer);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function userfaultOrReason(): ReturnType<typeof createBestUserfault> {
  try {
    return createBestUserfault();
  } catch (cause) {
    throw new UnsupportedError(
      'a stream as memory needs userfaultfd, which this system or container does not allow; use it block by block or as a ' +
        "Node stream, or see 'millrace doctor'",
      { cause },
    );
  }
}

/**
 * Fails the windows of a thread that is about to be terminated, so that it does not wait in a page
 * fault for ever.
 */
export function failPagersOf(threadId: number, code: number): number {
  return addon.pagersFail(threadId, code);
}

/** The same for all threads of the process, which is about to end. */
export function failAllPagers(code: number): number {
  return addon.pagersFail(-1, code);
}
