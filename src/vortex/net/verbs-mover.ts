// What the strategies on RDMA have in common: how a side is set up and watched, how a sender cuts blocks into WRITEs, and how
// a receiver counts what has come.

import type { Poller } from '../../native/index.ts';
import type { Mr } from '../../verbs/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import type { Mover, ReceiveMover } from './mover.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { countOf, notificationOf, type PathEvents, type VerbsPath } from './verbs-path.ts';

/** A side of a stream. Owns the path; the queue is the engine's. */
export abstract class VerbsMover implements Mover, PathEvents {
  protected readonly queue: BlockQueue;
  protected readonly path: VerbsPath;

  constructor(queue: BlockQueue, path: VerbsPath) {
    this.queue = queue;
    this.path = path;
  }

  abstract pump(): boolean;

  /** What the peer must know. */
  get offer(): Path {
    return this.path.offer();
  }

  /** Climbs: from now on the peer may write and speak. */
  async connect(remote: Path): Promise<void> {
    this.path.connect(remote);
  }

  /** After the peer has climbed, too. */
  async prepare(_signal: AbortSignal): Promise<void> {}

  watch(poller: Poller): void {
    this.path.watch(poller);
  }

  arm(): boolean {
    this.path.arm();
    return !this.path.poll(this);
  }

  onWritten(): void {}

  onNotification(_count: number, _isLast: boolean): void {
    throw new StreamFailure('nonsense', 'a count where none is due');
  }

  onAnnouncement(_block: number, _region: object): void {
    throw new StreamFailure('nonsense', 'an announcement where none is due');
  }

  [Symbol.dispose](): void {
    this.path.close();
  }
}

/** Writes blocks straight from the pool, as many WRITEs each as the wire's limit makes of it. */
export abstract class BlockSender extends VerbsMover {
  /** The next to be posted: block, and bytes of it that are posted. */
  protected block = 0;
  #at = 0;
  /** The next to be done. */
  protected doneBlock = 0;
  #doneAt = 0;

  /** Posts the rest of the block that is next, which begins at `from` in the region. False when not all of it had room. */
  protected post(mr: Mr, from: number, toAddress: number, rkey: number): boolean {
    const { block, path } = this;
    const length = lengthOfBlock(this.queue, block);
    while (this.#at < length) {
      if (!path.hasRoom) return false;
      const bytes = Math.min(length - this.#at, path.pieceBytes);
      const isEnd = this.#at + bytes === length;
      const notice = isEnd ? notificationOf(block + 1, length < this.queue.blockBytes) : -1;
      path.write(mr, from + this.#at, bytes, toAddress + this.#at, rkey, notice);
      this.#at += bytes;
    }
    this.block++;
    this.#at = 0;
    return true;
  }

  override onWritten(): void {
    const length = lengthOfBlock(this.queue, this.doneBlock);
    this.#doneAt += Math.min(length - this.#doneAt, this.path.pieceBytes);
    if (this.#doneAt < length) return;
    this.#doneAt = 0;
    this.onBlockDone(this.doneBlock);
    this.queue.release(++this.doneBlock);
  }

  protected onBlockDone(_block: number): void {}
}

/** Counts what the sender says has come, in blocks or in pieces of them. */
export abstract class VerbsReceiver extends VerbsMover implements ReceiveMover {
  protected arrived = 0;
  /** The last block is here, and is not full: it is not committed before the size is known. */
  protected isLastHere = false;
  readonly #unitBytes: number;

  constructor(queue: BlockQueue, path: VerbsPath, unitBytes: number) {
    super(queue, path);
    this.#unitBytes = unitBytes;
  }

  /** How many there can be by now. */
  protected abstract readonly maxArrived: number;

  override onNotification(count: number, isLast: boolean): void {
    const arrived = countOf(count, this.arrived, this.maxArrived);
    if (this.isLastHere && arrived > this.arrived) throw new StreamFailure('nonsense', 'a block after the last one');
    this.arrived = arrived;
    this.isLastHere = isLast;
  }

  protected commitArrived(): void {
    this.queue.commit(this.isLastHere ? this.arrived - 1 : this.arrived);
  }

  isComplete(sizeBytes: number): boolean {
    const total = Math.ceil(sizeBytes / this.#unitBytes);
    if (this.arrived <= total) return this.arrived === total;
    throw new StreamFailure('nonsense', `${this.arrived} blocks came of a stream of ${total}`);
  }
}

/** Only for blocks that are committed: whether one is the last and not full is known by then. */
export function lengthOfBlock(queue: BlockQueue, block: number): number {
  const { blockBytes, sizeBytes = Number.MAX_SAFE_INTEGER } = queue;
  return Math.min(blockBytes, sizeBytes - block * blockBytes);
}
