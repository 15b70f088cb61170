// The strategy `register`: each block is registered, announced, written and deregistered, several
// at a time. It is the Zero-Copy algorithm of "Network Vortex: Distributed Virtual Memory for
// Streaming Applications".

import { access, type Mr, type RemoteRegion } from '../../../verbs/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import type { QpEndpoints } from '../protocol.ts';
import { StreamFailure } from '../stream-failure.ts';
import type { QpPair } from './qp-pair.ts';
import { lengthOfBlock, RdmaBlockSender, RdmaReceiver } from './rdma-mover.ts';

/** Blocks that are registered at the same time. */
const IN_FLIGHT = 8;
const BLOCKS_A_TURN = 16;

/** The regions of blocks in flight, by block modulo IN_FLIGHT. */
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

export class RegisterSender extends RdmaBlockSender {
  /** The regions that the receiver has announced, by block modulo IN_FLIGHT. */
  readonly #targets: (RemoteRegion | undefined)[] = Array.from({ length: IN_FLIGHT });
  readonly #registrations = new Registrations();
  #announced = 0;

  override pump(): boolean {
    this.qpPair.poll(this);
    for (let turn = 0; turn < BLOCKS_A_TURN; turn++) {
      if (this.block >= this.queue.committed || this.block >= this.#announced) return false;
      if (!this.#postNext()) return false;
      this.qpPair.poll(this);
    }
    return true;
  }

  #postNext(): boolean {
    const { block } = this;
    const target = this.#targets[block % IN_FLIGHT];
    // The receiver may announce the next region for this slot before the completion of the last
    // WRITE is polled here.
    if (target === undefined || block >= this.doneBlock + IN_FLIGHT) return false;
    const mr = this.#registrations.of(block) ?? this.#registrations.add(block, this.#register(block));
    if (!this.post(mr, 0, target.address, target.rkey)) return false;
    this.#targets[block % IN_FLIGHT] = undefined;
    return true;
  }

  #register(block: number): Mr {
    const { queue } = this;
    const sizeBytes = lengthOfBlock(queue, block);
    return this.qpPair.pd.register(queue.pool, { offset: queue.offsetOf(block), sizeBytes, access: access.localWrite });
  }

  protected override onBlockDone(block: number): void {
    this.#registrations.close(block);
  }

  override onAnnouncement(block: number, region: RemoteRegion): void {
    if (block !== this.#announced || block >= this.block + IN_FLIGHT) {
      throw new StreamFailure('protocol', `the receiver announced block ${block}, and ${this.#announced} is expected`);
    }
    this.#targets[block % IN_FLIGHT] = region;
    this.#announced++;
  }
}

export class RegisterReceiver extends RdmaReceiver {
  readonly #registrations = new Registrations();
  #announced = 0;
  #isConnected = false;

  constructor(queue: BlockQueue, qpPair: QpPair) {
    super(queue, qpPair, queue.blockBytes);
  }

  override async connect(remote: QpEndpoints): Promise<void> {
    this.qpPair.connect(remote);
    this.#isConnected = true;
  }

  override pump(): boolean {
    this.qpPair.poll(this);
    if (this.#isConnected && !this.isLastHere) this.#announceFree();
    return false;
  }

  #announceFree(): void {
    const { released, poolBlocks, blockBytes, pool } = this.queue;
    const end = Math.min(released + poolBlocks, this.arrived + IN_FLIGHT);
    while (this.#announced < end && this.qpPair.hasRoomToAnnounce) {
      const block = this.#announced++;
      const mr = this.qpPair.pd.register(pool, {
        offset: this.queue.offsetOf(block),
        sizeBytes: blockBytes,
        access: access.localWrite | access.remoteWrite,
      });
      this.qpPair.announce(block, this.#registrations.add(block, mr).remote());
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
