// A stream between two threads of one process: both ends on one pool, handed to them as plain data.

import { UsageError } from '../../errors.ts';
import { compareExchange, Fd, Socket } from '../../native/index.ts';
import { BlockQueue, type BlockQueueParts, ledgerWord } from './block-queue.ts';
import { lifelineConnection } from './connection.ts';
import { Consumer } from './consumer.ts';
import { failureCode, type Role } from './failure.ts';
import { checkOptions, createStreamQueue, type StreamOptions } from './options.ts';
import { Producer } from './producer.ts';

/**
 * One end as plain data, for postMessage or workerData. It can be opened once, while its
 * LocalStream is open.
 */
export interface LocalHandle {
  readonly role: Role;
  readonly parts: BlockQueueParts;
  /**
   * One socket of a pair. The thread that opens the handle takes it over; it closes when that
   * thread ends.
   */
  readonly lifeline: number;
  readonly options: StreamOptions;
}

const OPEN = 1;
const GONE = 2;
const takenWord = { producer: ledgerWord.producerTaken, consumer: ledgerWord.consumerTaken } as const;

/**
 * Holds the descriptors that the handles name. Keep it until both ends are open; closing it does
 * not close open ends.
 */
export class LocalStream implements Disposable {
  readonly producer: LocalHandle;
  readonly consumer: LocalHandle;
  readonly #queue: BlockQueue;

  /** Takes over the queue. */
  constructor(queue: BlockQueue, options: StreamOptions) {
    this.#queue = queue;
    const [first, second] = Socket.pair();
    const { parts } = queue;
    this.producer = { role: 'producer', parts, lifeline: first.release(), options };
    this.consumer = { role: 'consumer', parts, lifeline: second.release(), options };
  }

  /** Ends the stream for both ends. */
  abort(): void {
    this.#queue.fail(failureCode.peerDied);
  }

  close(): void {
    if (this.#queue.ledger.isClosed) return;
    for (const { role, lifeline } of [this.producer, this.consumer]) {
      const isUnused = compareExchange(this.#queue.ledger.words, takenWord[role], 0, GONE) === 0;
      if (isUnused) Fd.adopt(lifeline).close();
    }
    this.#queue.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** `sizeBytes` undefined: the producer tells it when it finishes. */
export function createLocalStream(sizeBytes: number | undefined, options: StreamOptions = {}): LocalStream {
  return new LocalStream(createLocalQueue(sizeBytes, options), options);
}

/** Both ends hold `revisitBlocks` of the same pool, and each needs one more block to work on. */
export function createLocalQueue(sizeBytes: number | undefined, options: StreamOptions): BlockQueue {
  const { poolBlocks, revisitBlocks } = checkOptions(options);
  const needed = 2 * revisitBlocks + 2;
  if (poolBlocks < needed) {
    throw new UsageError(
      `a pool of ${poolBlocks} blocks: two ends with revisitBlocks ${revisitBlocks} need ${needed}; raise poolBlocks`,
    );
  }
  return createStreamQueue(sizeBytes, options);
}

/** Called by the thread that writes. Duplicates the descriptors of the handle. */
export function openLocalProducer(handle: LocalHandle): Producer {
  const { queue, lifeline } = openEnd(handle, 'producer');
  return new Producer(queue, handle.options, lifelineConnection(lifeline));
}

/** Called by the thread that reads. */
export function openLocalConsumer(handle: LocalHandle): Consumer {
  const { queue, lifeline } = openEnd(handle, 'consumer');
  return new Consumer(queue, handle.options, lifelineConnection(lifeline));
}

function openEnd(handle: LocalHandle, role: Role): { queue: BlockQueue; lifeline: Fd } {
  if (handle.role !== role)
    throw new UsageError(`open the ${role} of a local stream: this handle is the ${handle.role}'s`);
  using undo = new DisposableStack();
  const queue = undo.use(BlockQueue.open(handle.parts));
  if (compareExchange(queue.ledger.words, takenWord[role], 0, OPEN) !== 0) {
    throw new UsageError(`open the ${role} of a local stream: it was opened before; a handle can be opened once`);
  }
  const lifeline = undo.use(Fd.adopt(handle.lifeline));
  undo.move();
  return { queue, lifeline };
}
