// The core of a Vortex stream: blocks on their way from one producer to one consumer through a
// fixed pool in shared memory.
//
// Block n of the stream lives in slot n mod K of the pool, so two counters say everything: blocks
// below `committed` are written for good, blocks below `released` are read for good. The producer
// owns blocks [committed, released + K), the consumer [released, committed). Each counter has one
// writer. Pager, block forms and movers are all a producer or a consumer of this queue; the pager
// (native/pager.h) knows the layout of the ledger too.
//
// Ordering: a counter is stored with release after the last access to the blocks that it gives
// away, and loaded with acquire before the first access to the blocks that it opens. After every
// store the eventfd of the other end is signalled, so an end that loads, finds nothing and then
// blocks on its eventfd loses no event.

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

/**
 * 32-bit words of the ledger. The other end can write all of them: each value is checked when it is
 * read.
 */
export const ledgerWord = {
  magic: 0,
  blockShift: 1,
  poolBlocks: 2,
  /** 0 while the stream runs, else a `failureCode`. The first failure stays. */
  failure: 4,
  /** 1 once `sizeLow` and `sizeHigh` are final. */
  isSizeKnown: 5,
  sizeLow: 6,
  sizeHigh: 7,
  /** 1 once the end of a local stream is open, 2 once it cannot be opened any more. */
  producerTaken: 8,
  consumerTaken: 9,
  /** Each counter has a cache line of its own, so that the two ends do not share one. */
  committed: 16,
  released: 32,
  /**
   * The futex of a consumer in `sleepUntil`: every event for the consumer adds 1. `sleepers` is 1
   * while it sleeps.
   */
  eventCount: 48,
  sleepers: 49,
} as const;

const LEDGER_BYTES = 4096;
const MAGIC = 0x78747276;
export const MIN_BLOCK_BYTES = 64 * 1024;
export const MAX_BLOCK_BYTES = 64 * 1024 * 1024;
/** Counters are 31 bits; 2^31 blocks of 64 KiB are 128 TiB. */
const MAX_BLOCKS = 2 ** 31 - 1;

/** A thread in futex(2) cannot be terminated, so it wakes up at this interval. */
const SLEEP_NS = 100e6;

interface BlockQueueOptions {
  /** A power of two, 64 KiB to 64 MiB. */
  readonly blockBytes: number;
  /** K: how many blocks the pool has. */
  readonly poolBlocks: number;
  /** Undefined: told by `finish`. */
  readonly sizeBytes?: number | undefined;
  /**
   * True: 2 MiB pages, of which `blockBytes` must be a multiple. `transparent`: as many as the
   * system gives.
   */
  readonly hugePages?: boolean | 'transparent';
}

/** The descriptors of a queue, by which another thread or process opens it. */
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
  /** Doorbell of the consumer: signalled by commit, finish and fail. */
  readonly readable: EventFd;
  /** Doorbell of the producer: signalled by release and fail. */
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
    storeRelease(ledger.words, ledgerWord.magic, MAGIC); // partner: the constructor's load, perhaps in another process
    const queue = new BlockQueue(pool, ledger, undo.use(EventFd.create()), undo.use(EventFd.create()));
    if (sizeBytes !== undefined) queue.#setSize(sizeBytes);
    undo.move();
    return queue;
  }

  /**
   * The same queue in another thread or process. Duplicates the descriptors; those in `parts` stay
   * open.
   */
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
    // Partner: the store of `magic` in `create`, so that the geometry is read after it was written.
    if (ledger.sizeBytes < LEDGER_BYTES || loadAcquire(ledger.words, ledgerWord.magic) !== MAGIC) {
      throw new UsageError('open a Vortex stream: this memory does not hold a ledger');
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
    return loadAcquire(this.#words, ledgerWord.committed); // partner: `commit`, or give_away (native/pager-thread.c)
  }

  get released(): number {
    return loadAcquire(this.#words, ledgerWord.released); // partner: `release`, or give_away
  }

  /** Undefined until it is known. */
  get sizeBytes(): number | undefined {
    // Partner: the store of `isSizeKnown` in #setSize, which comes after the two words of the size.
    if (loadAcquire(this.#words, ledgerWord.isSizeKnown) === 0) return undefined;
    return (this.#words[ledgerWord.sizeLow] >>> 0) + (this.#words[ledgerWord.sizeHigh] >>> 0) * 2 ** 32;
  }

  /** How many blocks the stream has; undefined until it is known. */
  get totalBlocks(): number | undefined {
    const { sizeBytes } = this;
    return sizeBytes === undefined ? undefined : Math.ceil(sizeBytes / this.blockBytes);
  }

  /** Whether everything was written, read and released. */
  get isComplete(): boolean {
    const { totalBlocks } = this;
    return totalBlocks !== undefined && this.released >= totalBlocks;
  }

  /**
   * For the consumer, which has released all blocks below `released`: how far it may read. A
   * counter that runs backwards or past the pool fails the stream.
   */
  committedSince(previous: number, released: number): number {
    return this.#checked(this.committed, previous, released + this.poolBlocks);
  }

  /**
   * For the producer, which has committed all blocks below `committed`: how far the consumer is.
   * Checked alike.
   */
  releasedSince(previous: number, committed: number): number {
    return this.#checked(this.released, previous, committed);
  }

  /** 0 while the stream runs, else a `failureCode`. */
  get failure(): number {
    return loadAcquire(this.#words, ledgerWord.failure); // partner: `fail`, or mr_pager_fail (native/pager-thread.c)
  }

  /** Where a block begins in the pool. */
  offsetOf(block: number): number {
    return (block % this.poolBlocks) * this.blockBytes;
  }

  /** The producer gives away all blocks below `end`. */
  commit(end: number): void {
    storeRelease(this.#words, ledgerWord.committed, end); // partner: the load in `committed`, or the pager's
    this.#wakeConsumer();
  }

  /** The consumer gives back all blocks below `end`. */
  release(end: number): void {
    storeRelease(this.#words, ledgerWord.released, end); // partner: the load in `released`, or the pager's
    this.writable.signal();
  }

  /** The producer tells how long the stream is, before it commits the last block. */
  announceSize(sizeBytes: number): void {
    this.#setSize(sizeBytes);
    this.#wakeConsumer();
  }

  /**
   * The producer commits everything: the stream is `sizeBytes` long, its last block perhaps not
   * full.
   */
  finish(sizeBytes: number): void {
    this.#setSize(sizeBytes);
    this.commit(Math.ceil(sizeBytes / this.blockBytes));
  }

  /** Fails the stream for both ends. Only the first failure counts. */
  fail(code: number): void {
    compareExchange(this.#words, ledgerWord.failure, 0, code);
    this.#wakeConsumer();
    this.writable.signal();
  }

  /**
   * Blocks the consumer's thread until `isReady`, which is called again after every event of the
   * producer.
   */
  sleepUntil(isReady: () => boolean): void {
    // Partner: #wakeConsumer and wake_sleeper (native/pager-thread.c). Each side stores its word
    // before it loads the other's, sequentially consistent: either the waker sees the sleeper, or
    // the sleeper sees the new count.
    storeRelease(this.#words, ledgerWord.sleepers, 1);
    try {
      for (;;) {
        const seen = loadAcquire(this.#words, ledgerWord.eventCount);
        if (isReady()) return;
        futexWait(this.ledger, ledgerWord.eventCount * 4, seen, SLEEP_NS);
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

  #wakeConsumer(): void {
    this.readable.signal();
    // Partner: `sleepUntil`.
    fetchAdd(this.#words, ledgerWord.eventCount, 1);
    if (loadAcquire(this.#words, ledgerWord.sleepers) !== 0) futexWake(this.ledger, ledgerWord.eventCount * 4);
  }

  #checked(counter: number, least: number, most: number): number {
    if (counter >= least && counter <= most) return counter;
    this.fail(failureCode.protocol);
    return least;
  }

  #setSize(sizeBytes: number): void {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0 || Math.ceil(sizeBytes / this.blockBytes) > MAX_BLOCKS) {
      throw new UsageError(
        `a stream of ${sizeBytes} bytes: at most ${MAX_BLOCKS} blocks of ${this.blockBytes} bytes are possible; use larger blocks`,
      );
    }
    this.#words[ledgerWord.sizeLow] = (sizeBytes % 2 ** 32) | 0;
    this.#words[ledgerWord.sizeHigh] = Math.floor(sizeBytes / 2 ** 32) | 0;
    storeRelease(this.#words, ledgerWord.isSizeKnown, 1); // partner: the load in `sizeBytes`
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
