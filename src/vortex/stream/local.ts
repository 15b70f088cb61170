// A stream between two threads of one process: both ends on one pool, handed to them as plain data.

import { UsageError } from '../../errors.ts';
import { compareExchange, Fd, Socket } from '../../native/index.ts';
import { BlockQueue, type BlockQueueParts, ledgerWord } from './block-queue.ts';
import { carrierOver } from './carrier.ts';
import { Consumer } from './consumer.ts';
import { failureCode, type Role } from './failure.ts';
import { checkOptions, createStreamQueue, type StreamOptions } from './options.ts';
import { type EndOptions, Producer } from './producer.ts';

/** Plain data, for postMessage or workerData. Good for one opening, while the LocalStream it came from is open. */
export interface LocalHandle {
  readonly role: Role;
  readonly parts: BlockQueueParts;
  /** One end of a pair of sockets, which the thread that opens the handle takes over: when the thread ends, it closes. */
  readonly lifeline: number;
  readonly options: StreamOptions;
}

const OPEN = 1;
const GONE = 2;
const takenWord = { producer: ledgerWord.producerTaken, consumer: ledgerWord.consumerTaken } as const;

/** Holds what the handles name. Keep it until both ends are open; closing it leaves those that are open be. */
export class LocalStream implements Disposable {
  readonly producer: LocalHandle;
  readonly consumer: LocalHandle;
  readonly #queue: BlockQueue;

  /** Takes the queue over. */
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

/** `sizeBytes` undefined: the producer says it at the end. */
export function createLocalStream(sizeBytes: number | undefined, options: StreamOptions = {}): LocalStream {
  const checked = checkOptions(options);
  checkPair(checked.poolBlocks, checked.revisitBlocks);
  return new LocalStream(createStreamQueue(sizeBytes, options), options);
}

/** Both ends keep their revisit limit in one pool, and each needs a block to work on. */
export function checkPair(poolBlocks: number, revisitBlocks: number): void {
  const needed = 2 * revisitBlocks + 2;
  if (poolBlocks >= needed) return;
  throw new UsageError(
    `a pool of ${poolBlocks} blocks for two ends that may come back ${revisitBlocks}: they need ${needed}; raise poolBlocks`,
  );
}

/** In the thread that writes. Duplicates what the handle names. */
export function openLocalProducer(handle: LocalHandle): Producer {
  const { queue, lifeline, options } = openEnd(handle, 'producer');
  return new Producer(queue, options, carrierOver(lifeline));
}

/** In the thread that reads. */
export function openLocalConsumer(handle: LocalHandle): Consumer {
  const { queue, lifeline, options } = openEnd(handle, 'consumer');
  return new Consumer(queue, options, carrierOver(lifeline));
}

function openEnd(handle: LocalHandle, role: Role): { queue: BlockQueue; lifeline: Fd; options: EndOptions } {
  if (handle.role !== role)
    throw new UsageError(`open the ${role} of a local stream: this handle is the ${handle.role}'s`);
  using undo = new DisposableStack();
  const queue = undo.use(BlockQueue.open(handle.parts));
  if (compareExchange(queue.ledger.words, takenWord[role], 0, OPEN) !== 0) {
    throw new UsageError(`open the ${role} of a local stream: it is open already, or was; a handle is good once`);
  }
  const lifeline = undo.use(Fd.adopt(handle.lifeline));
  undo.move();
  return { queue, lifeline, options: { ...handle.options, peer: lifeline.fd } };
}
