// What the movers of RDMA have in common: how they connect and are watched, how a sender cuts
// blocks into WRITEs, and how a receiver counts what has arrived.

import type { Poller } from '../../../native/index.ts';
import type { Mr } from '../../../verbs/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import type { QpEndpoints } from '../protocol.ts';
import { StreamFailure } from '../stream-failure.ts';
import type { Mover, ReceiverMover } from './mover.ts';
import { countOf, notificationOf, type QpPair, type QpPairEvents } from './qp-pair.ts';

/** Owns the QP pair; the queue is the engine's. */
export abstract class RdmaMover implements Mover, QpPairEvents {
  protected readonly queue: BlockQueue;
  protected readonly qpPair: QpPair;

  constructor(queue: BlockQueue, qpPair: QpPair) {
    this.queue = queue;
    this.qpPair = qpPair;
  }

  abstract pump(): boolean;

  /** What the peer must know to connect. */
  get offer(): QpEndpoints {
    return this.qpPair.offer();
  }

  /** Modifies the queue pairs to RTS: from now on the peer may write and notify. */
  async connect(remote: QpEndpoints): Promise<void> {
    this.qpPair.connect(remote);
  }

  /** Called when the peer's queue pairs are in RTS too. */
  async prepare(_signal: AbortSignal): Promise<void> {}

  watch(poller: Poller): void {
    this.qpPair.watch(poller);
  }

  arm(): boolean {
    this.qpPair.arm();
    return !this.qpPair.poll(this);
  }

  onWritten(): void {}

  onNotification(_count: number, _isLast: boolean): void {
    throw new StreamFailure('protocol', 'the peer sent a count that is not expected');
  }

  onAnnouncement(_block: number, _region: object): void {
    throw new StreamFailure('protocol', 'the peer announced a region that is not expected');
  }

  [Symbol.dispose](): void {
    this.qpPair.close();
  }
}

/**
 * Writes blocks from the pool without a copy; blocks above the size limit of the device take
 * several WRITEs.
 */
export abstract class RdmaBlockSender extends RdmaMover {
  /** The next block to post; `#at` bytes of it are posted. */
  protected block = 0;
  #at = 0;
  /** The next block to complete; `#doneAt` bytes of it are done. */
  protected doneBlock = 0;
  #doneAt = 0;

  /**
   * Posts the rest of the next block, which begins at `from` in the region. False when the send
   * queue is full before.
   */
  protected post(mr: Mr, from: number, toAddress: number, rkey: number): boolean {
    const { block, qpPair } = this;
    const length = lengthOfBlock(this.queue, block);
    while (this.#at < length) {
      if (!qpPair.hasRoom) return false;
      const bytes = Math.min(length - this.#at, qpPair.pieceBytes);
      const isEnd = this.#at + bytes === length;
      const notification = isEnd ? notificationOf(block + 1, length < this.queue.blockBytes) : -1;
      qpPair.write(mr, from + this.#at, bytes, toAddress + this.#at, rkey, notification);
      this.#at += bytes;
    }
    this.block++;
    this.#at = 0;
    return true;
  }

  override onWritten(): void {
    const length = lengthOfBlock(this.queue, this.doneBlock);
    this.#doneAt += Math.min(length - this.#doneAt, this.qpPair.pieceBytes);
    if (this.#doneAt < length) return;
    this.#doneAt = 0;
    this.onBlockDone(this.doneBlock);
    this.queue.release(++this.doneBlock);
  }

  protected onBlockDone(_block: number): void {}
}

/** Counts the blocks, or pieces of blocks, that have arrived by the sender's notifications. */
export abstract class RdmaReceiver extends RdmaMover implements ReceiverMover {
  protected arrived = 0;
  /** The last block has arrived and is not full: it is committed by `finish`, with the size. */
  protected isLastHere = false;
  readonly #unitBytes: number;

  constructor(queue: BlockQueue, qpPair: QpPair, unitBytes: number) {
    super(queue, qpPair);
    this.#unitBytes = unitBytes;
  }

  /** How many can have arrived by now. */
  protected abstract readonly maxArrived: number;

  override onNotification(count: number, isLast: boolean): void {
    const arrived = countOf(count, this.arrived, this.maxArrived);
    if (this.isLastHere && arrived > this.arrived)
      throw new StreamFailure('protocol', 'the sender sent a block after the last one');
    this.arrived = arrived;
    this.isLastHere = isLast;
  }

  protected commitArrived(): void {
    this.queue.commit(this.isLastHere ? this.arrived - 1 : this.arrived);
  }

  isComplete(sizeBytes: number): boolean {
    const total = Math.ceil(sizeBytes / this.#unitBytes);
    if (this.arrived <= total) return this.arrived === total;
    throw new StreamFailure('protocol', `the sender sent ${this.arrived} blocks, and the stream has ${total}`);
  }
}

/** Only for committed blocks: by then it is known whether one is the last and not full. */
export function lengthOfBlock(queue: BlockQueue, block: number): number {
  const { blockBytes, sizeBytes = Number.MAX_SAFE_INTEGER } = queue;
  return Math.min(blockBytes, sizeBytes - block * blockBytes);
}
