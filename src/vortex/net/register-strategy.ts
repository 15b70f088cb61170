// The strategy `register`, the seed's Zero-Copy algorithm: each block is registered, announced, written and deregistered, several
// at a time.

import type { Poller } from '../../native/index.ts';
import { access, type Mr, type RemoteRegion } from '../../verbs/index.ts';
import type { BlockQueue } from '../block-queue.ts';
import type { ReceiveMover } from './mover.ts';
import { isArrived } from './pool-strategy.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { lengthOfBlock, type VerbsMover } from './verbs-mover.ts';
import { countOf, noticeOf, type PathEvents, type VerbsPath } from './verbs-path.ts';

/** Blocks that are registered at a time. */
const IN_FLIGHT = 8;
const BLOCKS_A_TURN = 16;

export class RegisterSender implements VerbsMover, PathEvents {
  readonly #queue: BlockQueue;
  readonly #path: VerbsPath;
  /** By block, modulo IN_FLIGHT: where the receiver wants it, and our own registration. */
  readonly #targets: (RemoteRegion | undefined)[] = Array.from({ length: IN_FLIGHT });
  readonly #regions: (Mr | undefined)[] = Array.from({ length: IN_FLIGHT });
  #announced = 0;
  #block = 0;
  #at = 0;
  #doneBlock = 0;
  #doneAt = 0;

  constructor(queue: BlockQueue, path: VerbsPath) {
    this.#queue = queue;
    this.#path = path;
  }

  get offer(): Path {
    return this.#path.offer();
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
    for (let turn = 0; turn < BLOCKS_A_TURN; turn++) {
      if (this.#block >= this.#queue.committed || this.#block >= this.#announced) return false;
      if (!this.#post()) return false;
      this.#path.poll(this);
    }
    return true;
  }

  /** The rest of one block. False when there was no room for all of it. */
  #post(): boolean {
    const { pool, blockBytes } = this.#queue;
    const block = this.#block;
    const place = block % IN_FLIGHT;
    const target = this.#targets[place];
    // A receiver may hear of a block's arrival before we do, and announce the one that takes its place.
    if (target === undefined || block >= this.#doneBlock + IN_FLIGHT) return false;
    const length = lengthOfBlock(this.#queue, block);
    const part = { offset: this.#queue.offsetOf(block), sizeBytes: length, access: access.localWrite };
    const mr = this.#regions[place] ?? this.#path.pd.register(pool, part);
    this.#regions[place] = mr;
    while (this.#at < length) {
      if (!this.#path.hasRoom) return false;
      const bytes = Math.min(length - this.#at, this.#path.pieceBytes);
      const notice = this.#at + bytes === length ? noticeOf(block + 1, length < blockBytes) : -1;
      this.#path.write(mr, this.#at, bytes, target.address + this.#at, target.rkey, notice);
      this.#at += bytes;
    }
    this.#targets[place] = undefined;
    this.#block++;
    this.#at = 0;
    return true;
  }

  onWritten(): void {
    const length = lengthOfBlock(this.#queue, this.#doneBlock);
    this.#doneAt += Math.min(length - this.#doneAt, this.#path.pieceBytes);
    if (this.#doneAt < length) return;
    this.#doneAt = 0;
    const place = this.#doneBlock % IN_FLIGHT;
    this.#regions[place]?.close();
    this.#regions[place] = undefined;
    this.#queue.release(++this.#doneBlock);
  }

  onAnnouncement(block: number, region: RemoteRegion): void {
    if (block !== this.#announced || block >= this.#block + IN_FLIGHT) {
      throw new StreamFailure('nonsense', `the receiver announced block ${block} where ${this.#announced} was due`);
    }
    this.#targets[block % IN_FLIGHT] = region;
    this.#announced++;
  }

  onNotice(): void {
    throw new StreamFailure('nonsense', 'a notice where blocks are announced');
  }

  arm(): boolean {
    this.#path.arm();
    return !this.#path.poll(this);
  }

  [Symbol.dispose](): void {
    this.#path.close();
  }
}

export class RegisterReceiver implements ReceiveMover, VerbsMover, PathEvents {
  readonly #queue: BlockQueue;
  readonly #path: VerbsPath;
  readonly #regions: (Mr | undefined)[] = Array.from({ length: IN_FLIGHT });
  #announced = 0;
  #arrived = 0;
  #isLastHere = false;
  #isConnected = false;

  constructor(queue: BlockQueue, path: VerbsPath) {
    this.#queue = queue;
    this.#path = path;
  }

  get offer(): Path {
    return this.#path.offer();
  }

  async connect(remote: Path): Promise<void> {
    this.#path.connect(remote);
    this.#isConnected = true;
  }

  async prepare(): Promise<void> {}

  watch(poller: Poller): void {
    this.#path.watch(poller);
  }

  pump(): boolean {
    this.#path.poll(this);
    if (this.#isConnected && !this.#isLastHere) this.#announceFree();
    return false;
  }

  #announceFree(): void {
    const { released, poolBlocks, blockBytes, pool } = this.#queue;
    const end = Math.min(released + poolBlocks, this.#arrived + IN_FLIGHT);
    while (this.#announced < end && this.#path.hasRoomToAnnounce) {
      const block = this.#announced++;
      const mr = this.#path.pd.register(pool, {
        offset: this.#queue.offsetOf(block),
        sizeBytes: blockBytes,
        access: access.localWrite | access.remoteWrite,
      });
      this.#regions[block % IN_FLIGHT] = mr;
      this.#path.announce(block, mr.remote());
    }
  }

  onNotice(count: number, isLast: boolean): void {
    const arrived = countOf(count, this.#arrived, this.#announced);
    if (this.#isLastHere && arrived > this.#arrived) throw new StreamFailure('nonsense', 'a block after the last one');
    for (; this.#arrived < arrived; this.#arrived++) {
      const place = this.#arrived % IN_FLIGHT;
      this.#regions[place]?.close();
      this.#regions[place] = undefined;
    }
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
