// The strategy `pool`: both pools are registered once, and WRITEs move a block from slot to slot
// without a copy.

import { access, type Mr, type RemoteRegion } from '../../../verbs/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import type { QpEndpoints } from '../protocol.ts';
import { StreamFailure } from '../stream-failure.ts';
import { countOf, notificationOf, QpPair } from './qp-pair.ts';
import { RdmaBlockSender, RdmaReceiver } from './rdma-mover.ts';

/** Bytes posted in one turn; on the `shm` wire posting a WRITE copies its bytes. */
const BYTES_A_TURN = 16 * 1024 * 1024;

export class PoolSender extends RdmaBlockSender {
  readonly #mr: Mr;
  readonly #remoteBlocks: number;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  /** Blocks that the receiver has released. */
  #returned = 0;

  constructor(queue: BlockQueue, qpPair: QpPair, remoteBlocks: number) {
    super(queue, qpPair);
    this.#remoteBlocks = remoteBlocks;
    this.#mr = qpPair.pd.register(queue.pool, { access: access.localWrite });
  }

  override async connect(remote: QpEndpoints): Promise<void> {
    this.#remote = QpPair.regionOf(remote, 'pool');
    if (this.#remote.sizeBytes < this.#remoteBlocks * this.queue.blockBytes) {
      throw new StreamFailure('protocol', 'the receiver offers a region that is smaller than its pool');
    }
    this.qpPair.connect(remote);
  }

  override prepare(signal: AbortSignal): Promise<void> {
    return this.qpPair.prepare(this.#remote, signal);
  }

  override pump(): boolean {
    const { queue, qpPair } = this;
    const { blockBytes } = queue;
    qpPair.poll(this);
    for (let bytes = 0; bytes < BYTES_A_TURN; bytes += blockBytes) {
      if (this.block >= queue.committed || this.block >= this.#returned + this.#remoteBlocks) return false;
      const to = this.#remote.address + (this.block % this.#remoteBlocks) * blockBytes;
      if (!this.post(this.#mr, queue.offsetOf(this.block), to, this.#remote.rkey)) return false;
      qpPair.poll(this);
    }
    return true;
  }

  override onNotification(count: number): void {
    // Compared with posted blocks, not completed ones: the receiver may release a block before its
    // completion is polled here.
    this.#returned = countOf(count, this.#returned, this.block);
  }
}

export class PoolReceiver extends RdmaReceiver {
  readonly #region: RemoteRegion;
  /** The `released` counter as last notified to the sender. */
  #notified = 0;

  constructor(queue: BlockQueue, qpPair: QpPair) {
    super(queue, qpPair, queue.blockBytes);
    this.#region = qpPair.grant(qpPair.pd.register(queue.pool, { access: access.localWrite | access.remoteWrite }));
  }

  override get offer(): QpEndpoints {
    return this.qpPair.offer({ pool: this.#region });
  }

  override pump(): boolean {
    this.qpPair.poll(this);
    // One notification for a quarter of the pool: meanwhile the sender has the rest to write to.
    const { released, poolBlocks } = this.queue;
    if (released - this.#notified >= Math.max(1, poolBlocks >> 2)) {
      this.#notified = released;
      this.qpPair.notify(notificationOf(released, false));
    }
    return false;
  }

  protected override get maxArrived(): number {
    return this.queue.released + this.queue.poolBlocks;
  }

  override onNotification(count: number, isLast: boolean): void {
    super.onNotification(count, isLast);
    this.commitArrived();
  }
}
