// The strategy `pool`: both pools are registered once, and a block goes from slot to slot by WRITEs, with no copy in between.

import { access, type Mr, type RemoteRegion } from '../../verbs/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { BlockSender, VerbsReceiver } from './verbs-mover.ts';
import { countOf, notificationOf, VerbsPath } from './verbs-path.ts';

/** Posted in a row before the loop looks at other things: where WRITEs are direct, this is a copy. */
const BYTES_A_TURN = 16 * 1024 * 1024;

export class PoolSender extends BlockSender {
  readonly #mr: Mr;
  readonly #remoteBlocks: number;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  /** Blocks that the receiver has given back. */
  #returned = 0;

  constructor(queue: BlockQueue, path: VerbsPath, remoteBlocks: number) {
    super(queue, path);
    this.#remoteBlocks = remoteBlocks;
    this.#mr = path.pd.register(queue.pool, { access: access.localWrite });
  }

  override async connect(remote: Path): Promise<void> {
    this.#remote = VerbsPath.regionOf(remote, 'pool');
    if (this.#remote.sizeBytes < this.#remoteBlocks * this.queue.blockBytes) {
      throw new StreamFailure('nonsense', 'the receiver offers less memory than its pool has');
    }
    this.path.connect(remote);
  }

  override prepare(signal: AbortSignal): Promise<void> {
    return this.path.prepare(this.#remote, signal);
  }

  override pump(): boolean {
    const { queue, path } = this;
    const { blockBytes } = queue;
    path.poll(this);
    for (let bytes = 0; bytes < BYTES_A_TURN; bytes += blockBytes) {
      if (this.block >= queue.committed || this.block >= this.#returned + this.#remoteBlocks) return false;
      const to = this.#remote.address + (this.block % this.#remoteBlocks) * blockBytes;
      if (!this.post(this.#mr, queue.offsetOf(this.block), to, this.#remote.rkey)) return false;
      path.poll(this);
    }
    return true;
  }

  override onNotification(count: number): void {
    // Not what is done: the receiver may have read a block before we hear that it has arrived.
    this.#returned = countOf(count, this.#returned, this.block);
  }
}

export class PoolReceiver extends VerbsReceiver {
  readonly #region: RemoteRegion;
  /** What the sender knows of our `released`. */
  #told = 0;

  constructor(queue: BlockQueue, path: VerbsPath) {
    super(queue, path, queue.blockBytes);
    this.#region = path.grant(path.pd.register(queue.pool, { access: access.localWrite | access.remoteWrite }));
  }

  override get offer(): Path {
    return this.path.offer({ pool: this.#region });
  }

  override pump(): boolean {
    this.path.poll(this);
    // Not for each block: the sender has the rest of the pool to go on with.
    const { released, poolBlocks } = this.queue;
    if (released - this.#told >= Math.max(1, poolBlocks >> 2)) {
      this.#told = released;
      this.path.notify(notificationOf(released, false));
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
