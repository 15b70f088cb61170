// The strategy `register`, the seed's Zero-Copy algorithm: each block is registered, announced, written and deregistered, several
// at a time.

import { access, type Mr, type RemoteRegion } from '../../verbs/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { BlockSender, lengthOfBlock, VerbsReceiver } from './verbs-mover.ts';
import type { VerbsPath } from './verbs-path.ts';

/** Blocks that are registered at a time. */
const IN_FLIGHT = 8;
const BLOCKS_A_TURN = 16;

/** The registrations of blocks under way: by block, modulo IN_FLIGHT. */
class Registrations {
  readonly #regions: (Mr | undefined)[] = Array.from({ length: IN_FLIGHT });

  of(block: number): Mr | undefined {
    return this.#regions[block % IN_FLIGHT];
  }

  add(block: number, mr: Mr): Mr {
    this.#regions[block % IN_FLIGHT] = mr;
    return mr;
  }

  close(block: number): void {
    this.of(block)?.close();
    this.#regions[block % IN_FLIGHT] = undefined;
  }
}

export class RegisterSender extends BlockSender {
  /** By block, modulo IN_FLIGHT: where the receiver wants it. */
  readonly #targets: (RemoteRegion | undefined)[] = Array.from({ length: IN_FLIGHT });
  readonly #registrations = new Registrations();
  #announced = 0;

  override pump(): boolean {
    this.path.poll(this);
    for (let turn = 0; turn < BLOCKS_A_TURN; turn++) {
      if (this.block >= this.queue.committed || this.block >= this.#announced) return false;
      if (!this.#postNext()) return false;
      this.path.poll(this);
    }
    return true;
  }

  #postNext(): boolean {
    const { block } = this;
    const target = this.#targets[block % IN_FLIGHT];
    // A receiver may hear of a block's arrival before we do, and announce the one that takes its place.
    if (target === undefined || block >= this.doneBlock + IN_FLIGHT) return false;
    const mr = this.#registrations.of(block) ?? this.#registrations.add(block, this.#register(block));
    if (!this.post(mr, 0, target.address, target.rkey)) return false;
    this.#targets[block % IN_FLIGHT] = undefined;
    return true;
  }

  #register(block: number): Mr {
    const { queue } = this;
    const sizeBytes = lengthOfBlock(queue, block);
    return this.path.pd.register(queue.pool, { offset: queue.offsetOf(block), sizeBytes, access: access.localWrite });
  }

  protected override onBlockDone(block: number): void {
    this.#registrations.close(block);
  }

  override onAnnouncement(block: number, region: RemoteRegion): void {
    if (block !== this.#announced || block >= this.block + IN_FLIGHT) {
      throw new StreamFailure('nonsense', `the receiver announced block ${block} where ${this.#announced} was due`);
    }
    this.#targets[block % IN_FLIGHT] = region;
    this.#announced++;
  }
}

export class RegisterReceiver extends VerbsReceiver {
  readonly #registrations = new Registrations();
  #announced = 0;
  #isConnected = false;

  constructor(queue: BlockQueue, path: VerbsPath) {
    super(queue, path, queue.blockBytes);
  }

  override async connect(remote: Path): Promise<void> {
    this.path.connect(remote);
    this.#isConnected = true;
  }

  override pump(): boolean {
    this.path.poll(this);
    if (this.#isConnected && !this.isLastHere) this.#announceFree();
    return false;
  }

  #announceFree(): void {
    const { released, poolBlocks, blockBytes, pool } = this.queue;
    const end = Math.min(released + poolBlocks, this.arrived + IN_FLIGHT);
    while (this.#announced < end && this.path.hasRoomToAnnounce) {
      const block = this.#announced++;
      const mr = this.path.pd.register(pool, {
        offset: this.queue.offsetOf(block),
        sizeBytes: blockBytes,
        access: access.localWrite | access.remoteWrite,
      });
      this.path.announce(block, this.#registrations.add(block, mr).remote());
    }
  }

  protected override get maxArrived(): number {
    return this.#announced;
  }

  override onNotification(count: number, isLast: boolean): void {
    const before = this.arrived;
    super.onNotification(count, isLast);
    for (let block = before; block < this.arrived; block++) this.#registrations.close(block);
    this.commitArrived();
  }
}
