// The strategy `copy`: pieces of blocks are copied into static registered buffers, written and
// copied out again, while other pieces are in flight. It is the Pipelined-Copy algorithm of
// "Network Vortex: Distributed Virtual Memory for Streaming Applications".
//
// The buffers are few, so that they stay in the processor's cache and the second copy of a piece
// does not go to memory.

import { copyMemory, HUGE_PAGE_BYTES, SharedMemory } from '../../../native/index.ts';
import { access, type Mr, type RemoteRegion } from '../../../verbs/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import { freeHugePages } from '../../stream/index.ts';
import type { QpEndpoints } from '../protocol.ts';
import { StreamFailure } from '../stream-failure.ts';
import { countOf, notificationOf, QpPair } from './qp-pair.ts';
import { lengthOfBlock, RdmaMover, RdmaReceiver } from './rdma-mover.ts';

const MAX_PIECE_BYTES = 512 * 1024;
/** How many buffers each host has. */
const PIECES = 8;
const PIECES_A_TURN = 64;

/**
 * Both hosts must compute the same: a piece has this length unless its block ends before. It
 * divides every block.
 */
function pieceBytesOf({ blockBytes }: BlockQueue): number {
  return Math.min(blockBytes, MAX_PIECE_BYTES);
}

/** Uses huge pages if enough are free: a copy to or from them takes a quarter less time. */
function createStaging(pieceBytes: number): SharedMemory {
  const sizeBytes = PIECES * pieceBytes;
  const hugePages = sizeBytes % HUGE_PAGE_BYTES === 0 && freeHugePages() * HUGE_PAGE_BYTES > sizeBytes;
  return SharedMemory.create({ sizeBytes, hugePages, name: 'vortex-staging', populate: true });
}

export class CopySender extends RdmaMover {
  readonly #pieceBytes: number;
  readonly #staging: SharedMemory;
  readonly #mr: Mr;
  readonly #piecesPerBlock: number;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  #remotePieces = 0;
  /** Pieces that were posted, that have completed, and that the receiver has copied out. */
  #posted = 0;
  #done = 0;
  #returned = 0;

  constructor(queue: BlockQueue, qpPair: QpPair) {
    super(queue, qpPair);
    this.#pieceBytes = pieceBytesOf(queue);
    this.#piecesPerBlock = queue.blockBytes / this.#pieceBytes;
    this.#staging = createStaging(this.#pieceBytes);
    this.#mr = qpPair.pd.register(this.#staging, { access: access.localWrite });
  }

  override async connect(remote: QpEndpoints): Promise<void> {
    this.#remote = QpPair.regionOf(remote, 'staging');
    this.#remotePieces = Math.floor(this.#remote.sizeBytes / this.#pieceBytes);
    if (this.#remotePieces < 1)
      throw new StreamFailure('protocol', 'the receiver offers a region that is smaller than a piece');
    this.qpPair.connect(remote);
  }

  override prepare(signal: AbortSignal): Promise<void> {
    return this.qpPair.prepare(this.#remote, signal);
  }

  override pump(): boolean {
    this.qpPair.poll(this);
    const { queue } = this;
    for (let turn = 0; turn < PIECES_A_TURN; turn++) {
      const block = Math.floor(this.#posted / this.#piecesPerBlock);
      if (block >= queue.committed || !this.qpPair.hasRoom) return false;
      if (this.#posted >= this.#done + PIECES || this.#posted >= this.#returned + this.#remotePieces) return false;
      this.#post(block);
      this.qpPair.poll(this);
    }
    return true;
  }

  #post(block: number): void {
    const { queue } = this;
    const at = (this.#posted - block * this.#piecesPerBlock) * this.#pieceBytes;
    const length = lengthOfBlock(queue, block);
    const bytes = Math.min(length - at, this.#pieceBytes);
    const place = (this.#posted % PIECES) * this.#pieceBytes;
    copyMemory(this.#staging, place, queue.pool, queue.offsetOf(block) + at, bytes);
    const isBlockOver = at + bytes === length;
    const to = this.#remote.address + (this.#posted % this.#remotePieces) * this.#pieceBytes;
    const notification = notificationOf(this.#posted + 1, isBlockOver && length < queue.blockBytes);
    this.#posted++;
    this.qpPair.write(this.#mr, place, bytes, to, this.#remote.rkey, notification);
    // The block was copied, so the producer may have it back before it is sent.
    if (isBlockOver) queue.release(block + 1);
  }

  override onWritten(): void {
    this.#done++;
  }

  override onNotification(count: number): void {
    this.#returned = countOf(count, this.#returned, this.#posted);
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]();
    this.#staging.close();
  }
}

export class CopyReceiver extends RdmaReceiver {
  readonly #pieceBytes: number;
  readonly #staging: SharedMemory;
  readonly #region: RemoteRegion;
  readonly #piecesPerBlock: number;
  /** Pieces that were copied to their blocks, and how many of them the sender was notified of. */
  #copied = 0;
  #notified = 0;

  constructor(queue: BlockQueue, qpPair: QpPair) {
    super(queue, qpPair, pieceBytesOf(queue));
    this.#pieceBytes = pieceBytesOf(queue);
    this.#piecesPerBlock = queue.blockBytes / this.#pieceBytes;
    this.#staging = createStaging(this.#pieceBytes);
    this.#region = qpPair.grant(qpPair.pd.register(this.#staging, { access: access.localWrite | access.remoteWrite }));
  }

  override get offer(): QpEndpoints {
    return this.qpPair.offer({ staging: this.#region });
  }

  override pump(): boolean {
    this.qpPair.poll(this);
    const { queue } = this;
    for (let turn = 0; turn < PIECES_A_TURN; turn++) {
      const block = Math.floor(this.#copied / this.#piecesPerBlock);
      if (this.#copied >= this.arrived || block >= queue.released + queue.poolBlocks) return false;
      const at = (this.#copied - block * this.#piecesPerBlock) * this.#pieceBytes;
      const place = (this.#copied % PIECES) * this.#pieceBytes;
      // The last piece may be shorter: the bytes after it lie past the end of the stream, and no
      // program sees them.
      copyMemory(queue.pool, queue.offsetOf(block) + at, this.#staging, place, this.#pieceBytes);
      this.#copied++;
      // A last block that is not full is committed by `finish`, with the size.
      const isLast = this.isLastHere && this.#copied === this.arrived;
      if (this.#copied % this.#piecesPerBlock === 0 && !isLast) queue.commit(block + 1);
      if (this.#copied - this.#notified >= PIECES / 4) this.#notify();
      this.qpPair.poll(this);
    }
    return true;
  }

  #notify(): void {
    this.#notified = this.#copied;
    this.qpPair.notify(notificationOf(this.#copied, false));
  }

  protected override get maxArrived(): number {
    return this.#copied + PIECES;
  }

  override isComplete(sizeBytes: number): boolean {
    return this.#copied === this.arrived && super.isComplete(sizeBytes);
  }

  override [Symbol.dispose](): void {
    super[Symbol.dispose]();
    this.#staging.close();
  }
}
