// The core of a Vortex stream: blocks on their way from one producer to one consumer through a fixed pool in shared memory.
//
// Block n of the stream lives in slot n mod K of the pool, so two counters say everything: `committed` blocks are
// written for good, `released` blocks are read for good. The producer owns blocks [committed, released + K), the consumer
// [released, committed). Each counter has one writer. The pager (native/pager.c) is a producer or a consumer like any other and
// knows this layout.
//
// Ordering: a counter is stored with release after the last access to the blocks it gives away, and loaded with acquire
// before the first access to those it opens. After every store the other side's eventfd is signalled, so who waits loads, finds
// nothing, and blocks on its eventfd loses no news.

import { UsageError } from '../../errors.ts';
import {
  compareExchange,
  EventFd,
  Fd,
  fetchAdd,
  futexWait,
  futexWake,
  loadAcquire,
  SharedMemory,
  storeRelease,
} from '../../native/index.ts';
import { failureCode } from './failure.ts';

/** 32-bit words of the ledger. Everything a side reads here was written by the other party: check it. */
export const ledgerWord = {
  magic: 0,
  blockShift: 1,
  poolBlocks: 2,
  /** 0: running, else a `failureCode`; the first one stays. */
  failure: 4,
  /** 1 once `sizeLow` and `sizeHigh` hold for good. */
  isSizeKnown: 5,
  sizeLow: 6,
  sizeHigh: 7,
  /** 1 once the end of a local stream is open, 2 once it cannot be opened any more. */
  producerTaken: 8,
  consumerTaken: 9,
  /** A cache line each: the sides do not disturb each other. */
  committed: 16,
  released: 32,
  /** Counts what a consumer that sleeps on it must hear of; `sleepers` is not 0 while there is one. */
  news: 48,
  sleepers: 49,
} as const;

export const LEDGER_BYTES = 4096;
const MAGIC = 0x78747276;
export const MIN_BLOCK_BYTES = 64 * 1024;
export const MAX_BLOCK_BYTES = 64 * 1024 * 1024;
/** Counters are 31 bits; 2^31 blocks of 64 KiB are 128 TiB. */
export const MAX_BLOCKS = 2 ** 31 - 1;

/** A thread in futex(2) cannot be terminated: it comes up that often. */
const SLEEP_NS = 100e6;

export interface BlockQueueOptions {
  /** A power of two, 64 KiB to 64 MiB. */
  readonly blockBytes: number;
  /** K: how many blocks the pool has. */
  readonly poolBlocks: number;
  /** Undefined: not known before `finish`. */
  readonly sizeBytes?: number | undefined;
  /** 2 MiB pages: `blockBytes` must be a multiple. `transparent`: as many as the system gives. */
  readonly hugePages?: boolean | 'transparent';
}

/** Descriptors of the parts, for another thread (which duplicates them) or another process. */
export interface BlockQueueParts {
  readonly pool: number;
  readonly ledger: number;
  readonly readable: number;
  readonly writable: number;
}

export class BlockQueue implements Disposable {
  readonly blockBytes: number;
  readonly poolBlocks: number;
  /** Slot n begins at n * blockBytes. */
  readonly pool: SharedMemory;
  readonly ledger: SharedMemory;
  /** The consumer waits on it: signalled by commit, finish and fail. */
  readonly readable: EventFd;
  /** The producer waits on it: signalled by release and fail. */
  readonly writable: EventFd;
  readonly #words: Int32Array;

  static create(options: BlockQueueOptions): BlockQueue {
    const { blockBytes, poolBlocks, sizeBytes, hugePages = false } = options;
    checkGeometry(blockBytes, poolBlocks);
    using undo = new DisposableStack();
    const pool = undo.use(
      SharedMemory.create({ name: 'vortex-pool', sizeBytes: blockBytes * poolBlocks, hugePages, populate: true }),
    );
    const ledger = undo.use(SharedMemory.create({ name: 'vortex-ledger', sizeBytes: LEDGER_BYTES, populate: true }));
    ledger.words[ledgerWord.blockShift] = Math.log2(blockBytes);
    ledger.words[ledgerWord.poolBlocks] = poolBlocks;
    storeRelease(ledger.words, ledgerWord.magic, MAGIC);
    const queue = new BlockQueue(pool, ledger, undo.use(EventFd.create()), undo.use(EventFd.create()));
    if (sizeBytes !== undefined) queue.#setSize(sizeBytes);
    undo.move();
    return queue;
  }

  /** The same queue in another thread or process. Duplicates the descriptors; the caller keeps its own. */
  static open(parts: BlockQueueParts): BlockQueue {
    using undo = new DisposableStack();
    const ledger = undo.use(SharedMemory.open(Fd.duplicateOf(parts.ledger)));
    const pool = undo.use(SharedMemory.open(Fd.duplicateOf(parts.pool)));
    const readable = undo.use(EventFd.duplicateOf(parts.readable));
    const queue = new BlockQueue(pool, ledger, readable, undo.use(EventFd.duplicateOf(parts.writable)));
    undo.move();
    return queue;
  }

  private constructor(pool: SharedMemory, ledger: SharedMemory, readable: EventFd, writable: EventFd) {
    if (ledger.sizeBytes < LEDGER_BYTES || loadAcquire(ledger.words, ledgerWord.magic) !== MAGIC) {
      throw new UsageError('open a Vortex stream: this memory is no ledger');
    }
    const blockBytes = 2 ** ledger.words[ledgerWord.blockShift];
    const poolBlocks = ledger.words[ledgerWord.poolBlocks];
    checkGeometry(blockBytes, poolBlocks);
    if (pool.sizeBytes < blockBytes * poolBlocks) throw new UsageError('open a Vortex stream: its pool is too small');
    this.blockBytes = blockBytes;
    this.poolBlocks = poolBlocks;
    this.pool = pool;
    this.ledger = ledger;
    this.readable = readable;
    this.writable = writable;
    this.#words = ledger.words;
  }

  get parts(): BlockQueueParts {
    return {
      pool: this.pool.fd,
      ledger: this.ledger.fd,
      readable: this.readable.fd,
      writable: this.writable.fd,
    };
  }

  get committed(): number {
    return loadAcquire(this.#words, ledgerWord.committed);
  }

  get released(): number {
    return loadAcquire(this.#words, ledgerWord.released);
  }

  /** Undefined while nobody knows. */
  get sizeBytes(): number | undefined {
    if (loadAcquire(this.#words, ledgerWord.isSizeKnown) === 0) return undefined;
    return (this.#words[ledgerWord.sizeLow] >>> 0) + (this.#words[ledgerWord.sizeHigh] >>> 0) * 2 ** 32;
  }

  /** How many blocks the stream has; undefined while nobody knows. */
  get totalBlocks(): number | undefined {
    const { sizeBytes } = this;
    return sizeBytes === undefined ? undefined : Math.ceil(sizeBytes / this.blockBytes);
  }

  /** Whether all of it was written, read and given back. */
  get isComplete(): boolean {
    const { totalBlocks } = this;
    return totalBlocks !== undefined && this.released >= totalBlocks;
  }

  /**
   * For the consumer, which has released all below `released`: how far it may read. A producer that runs backwards or
   * past the pool fails the stream.
   */
  committedSince(previous: number, released: number): number {
    return this.#checked(this.committed, previous, released + this.poolBlocks);
  }

  /** For the producer, which has committed all below `committed`: how far the consumer is. Checked alike. */
  releasedSince(previous: number, committed: number): number {
    return this.#checked(this.released, previous, committed);
  }

  /** 0 while all is well. */
  get failure(): number {
    return loadAcquire(this.#words, ledgerWord.failure);
  }

  /** Where block n is in the pool. */
  offsetOf(block: number): number {
    return (block % this.poolBlocks) * this.blockBytes;
  }

  /** The producer gives away all blocks below `end`. */
  commit(end: number): void {
    storeRelease(this.#words, ledgerWord.committed, end); // partner: the consumer's load of `committed`
    this.#tellConsumer();
  }

  /** The consumer gives back all blocks below `end`. */
  release(end: number): void {
    storeRelease(this.#words, ledgerWord.released, end); // partner: the producer's load of `released`
    this.writable.signal();
  }

  /** The producer says how long the stream is, before it commits the last block. */
  announceSize(sizeBytes: number): void {
    this.#setSize(sizeBytes);
    this.#tellConsumer();
  }

  /** The producer commits what there is: the stream is `sizeBytes` long, its last block perhaps not full. */
  finish(sizeBytes: number): void {
    this.#setSize(sizeBytes);
    this.commit(Math.ceil(sizeBytes / this.blockBytes));
  }

  /** Either side ends the stream for both. Only the first failure counts. */
  fail(code: number): void {
    compareExchange(this.#words, ledgerWord.failure, 0, code);
    this.#tellConsumer();
    this.writable.signal();
  }

  /** Blocks the consumer's thread until `isReady`, asking again whenever the producer did something. */
  sleepUntil(isReady: () => boolean): void {
    storeRelease(this.#words, ledgerWord.sleepers, 1); // partner: #tellConsumer; both are sequentially consistent
    try {
      for (;;) {
        const news = loadAcquire(this.#words, ledgerWord.news);
        if (isReady()) return;
        futexWait(this.ledger, ledgerWord.news * 4, news, SLEEP_NS);
      }
    } finally {
      storeRelease(this.#words, ledgerWord.sleepers, 0);
    }
  }

  close(): void {
    this.pool.close();
    this.ledger.close();
    this.readable.close();
    this.writable.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #tellConsumer(): void {
    this.readable.signal();
    fetchAdd(this.#words, ledgerWord.news, 1);
    if (loadAcquire(this.#words, ledgerWord.sleepers) !== 0) futexWake(this.ledger, ledgerWord.news * 4);
  }

  #checked(counter: number, least: number, most: number): number {
    if (counter >= least && counter <= most) return counter;
    this.fail(failureCode.protocol);
    return least;
  }

  #setSize(sizeBytes: number): void {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0 || Math.ceil(sizeBytes / this.blockBytes) > MAX_BLOCKS) {
      throw new UsageError(
        `a stream of ${sizeBytes} bytes: with blocks of ${this.blockBytes} there may be ${MAX_BLOCKS}`,
      );
    }
    this.#words[ledgerWord.sizeLow] = (sizeBytes % 2 ** 32) | 0;
    this.#words[ledgerWord.sizeHigh] = Math.floor(sizeBytes / 2 ** 32) | 0;
    storeRelease(this.#words, ledgerWord.isSizeKnown, 1); // partner: `sizeBytes`
  }
}

function checkGeometry(blockBytes: number, poolBlocks: number): void {
  const isPower = Number.isInteger(Math.log2(blockBytes));
  if (!isPower || blockBytes < MIN_BLOCK_BYTES || blockBytes > MAX_BLOCK_BYTES) {
    throw new UsageError(`blocks of ${blockBytes} bytes: the size must be a power of two from 64 KiB to 64 MiB`);
  }
  if (!Number.isInteger(poolBlocks) || poolBlocks < 2 || poolBlocks > 65536) {
    throw new UsageError(`a pool of ${poolBlocks} blocks: there must be 2 to 65536`);
  }
}
