// The strategy `pool`: both pools are registered once, and a block goes from slot to slot by WRITEs, with no copy in between.

import type { Poller } from '../../native/index.ts';
import { access, type Mr, type RemoteRegion } from '../../verbs/index.ts';
import type { BlockQueue } from '../block-queue.ts';
import type { ReceiveMover } from './mover.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { lengthOfBlock, type VerbsMover } from './verbs-mover.ts';
import { countOf, noticeOf, type PathEvents, VerbsPath } from './verbs-path.ts';

/** Posted in a row before the loop looks at other things: where WRITEs are direct, this is a copy. */
const BYTES_A_TURN = 16 * 1024 * 1024;

export class PoolSender implements VerbsMover, PathEvents {
  readonly #queue: BlockQueue;
  readonly #path: VerbsPath;
  readonly #mr: Mr;
  readonly #remoteBlocks: number;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  /** The next to be posted: block, and bytes of it that are posted. */
  #block = 0;
  #at = 0;
  /** The next to be done. */
  #doneBlock = 0;
  #doneAt = 0;
  /** Blocks that the receiver has given back. */
  #returned = 0;

  constructor(queue: BlockQueue, path: VerbsPath, remoteBlocks: number) {
    this.#queue = queue;
    this.#path = path;
    this.#remoteBlocks = remoteBlocks;
    this.#mr = path.pd.register(queue.pool, { access: access.localWrite });
  }

  get offer(): Path {
    return this.#path.offer();
  }

  async connect(remote: Path): Promise<void> {
    this.#remote = VerbsPath.regionOf(remote, 'pool');
    if (this.#remote.sizeBytes < this.#remoteBlocks * this.#queue.blockBytes) {
      throw new StreamFailure('nonsense', 'the receiver offers less memory than its pool has');
    }
    this.#path.connect(remote);
  }

  prepare(signal: AbortSignal): Promise<void> {
    return this.#path.prepare(this.#remote, signal);
  }

  watch(poller: Poller): void {
    this.#path.watch(poller);
  }

  pump(): boolean {
    this.#path.poll(this);
    for (let bytes = 0; bytes < BYTES_A_TURN; bytes += this.#queue.blockBytes) {
      const committed = this.#queue.committed;
      if (this.#block >= committed || this.#block >= this.#returned + this.#remoteBlocks) return false;
      if (!this.#post()) return false;
      this.#path.poll(this);
    }
    return true;
  }

  /** The rest of one block. False when there was no room for all of it. */
  #post(): boolean {
    const { blockBytes } = this.#queue;
    const block = this.#block;
    const length = lengthOfBlock(this.#queue, block);
    const from = this.#queue.offsetOf(block);
    const to = this.#remote.address + (block % this.#remoteBlocks) * blockBytes;
    while (this.#at < length) {
      if (!this.#path.hasRoom) return false;
      const bytes = Math.min(length - this.#at, this.#path.pieceBytes);
      const isEnd = this.#at + bytes === length;
      const notice = isEnd ? noticeOf(block + 1, length < blockBytes) : -1;
      this.#path.write(this.#mr, from + this.#at, bytes, to + this.#at, this.#remote.rkey, notice);
      this.#at += bytes;
    }
    this.#block++;
    this.#at = 0;
    return true;
  }

  onWritten(): void {
    const length = lengthOfBlock(this.#queue, this.#doneBlock);
    this.#doneAt += Math.min(length - this.#doneAt, this.#path.pieceBytes);
    if (this.#doneAt < length) return;
    this.#doneAt = 0;
    this.#queue.release(++this.#doneBlock);
  }

  onNotice(count: number): void {
    // Not what is done: the receiver may have read a block before we hear that it has arrived.
    this.#returned = countOf(count, this.#returned, this.#block);
  }

  onAnnouncement(): void {
    throw new StreamFailure('nonsense', 'an announcement where blocks go from pool to pool');
  }

  arm(): boolean {
    this.#path.arm();
    return !this.#path.poll(this);
  }

  [Symbol.dispose](): void {
    this.#path.close();
  }
}

export class PoolReceiver implements ReceiveMover, VerbsMover, PathEvents {
  readonly #queue: BlockQueue;
  readonly #path: VerbsPath;
  readonly #region: RemoteRegion;
  /** Blocks that have arrived; the last one may not be full, and is not committed before the size is known. */
  #arrived = 0;
  #isLastHere = false;
  /** What the sender knows of our `released`. */
  #told = 0;

  constructor(queue: BlockQueue, path: VerbsPath) {
    this.#queue = queue;
    this.#path = path;
    this.#region = path.grant(path.pd.register(queue.pool, { access: access.localWrite | access.remoteWrite }));
  }

  get offer(): Path {
    return this.#path.offer({ pool: this.#region });
  }

  async connect(remote: Path): Promise<void> {
    this.#path.connect(remote);
  }

  async prepare(): Promise<void> {}

  watch(poller: Poller): void {
    this.#path.watch(poller);
  }

  pump(): boolean {
    this.#path.poll(this);
    // Not for each block: the sender has the rest of the pool to go on with.
    const { released, poolBlocks } = this.#queue;
    if (released - this.#told >= Math.max(1, poolBlocks >> 2)) {
      this.#told = released;
      this.#path.notify(noticeOf(released, false));
    }
    return false;
  }

  onNotice(count: number, isLast: boolean): void {
    const { released, poolBlocks } = this.#queue;
    const arrived = countOf(count, this.#arrived, released + poolBlocks);
    if (this.#isLastHere && arrived > this.#arrived) throw new StreamFailure('nonsense', 'a block after the last one');
    this.#arrived = arrived;
    this.#isLastHere = isLast;
    this.#queue.commit(isLast ? arrived - 1 : arrived);
  }

  isComplete(sizeBytes: number): boolean {
    return isArrived(this.#arrived, sizeBytes, this.#queue.blockBytes);
  }

  onWritten(): void {}

  onAnnouncement(): void {
    throw new StreamFailure('nonsense', 'an announcement from a sender');
  }

  arm(): boolean {
    this.#path.arm();
    return !this.#path.poll(this);
  }

  [Symbol.dispose](): void {
    this.#path.close();
  }
}

/** Whether these blocks are all of a stream. */
export function isArrived(blocks: number, sizeBytes: number, blockBytes: number): boolean {
  const total = Math.ceil(sizeBytes / blockBytes);
  if (blocks > total) throw new StreamFailure('nonsense', `${blocks} blocks came of a stream of ${total}`);
  return blocks === total;
}
