// The strategy `copy`, the seed's Pipelined-Copy algorithm: static registered buffers at both ends, and pieces of blocks that are copied
// into them and out of them while others are under way.
//
// The buffers are few on purpose: together they stay in the processor's cache, so that the second copy of a piece does not
// go to memory again.

import { copyMemory, HUGE_PAGE_BYTES, SharedMemory } from '../../native/index.ts';
import { access, type Mr, type RemoteRegion } from '../../verbs/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { freeHugePages } from '../stream/index.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';
import { lengthOfBlock, VerbsMover, VerbsReceiver } from './verbs-mover.ts';
import { countOf, notificationOf, VerbsPath } from './verbs-path.ts';

const MAX_PIECE_BYTES = 512 * 1024;
/** Buffers at each end. */
const PIECES = 8;
const PIECES_A_TURN = 64;

/** Part of the protocol: a piece has this length unless its block ends before. Divides every block. */
function pieceBytesOf({ blockBytes }: BlockQueue): number {
  return Math.min(blockBytes, MAX_PIECE_BYTES);
}

/** Huge pages where some are free: a copy to or from them takes a quarter less time. */
function createStaging(pieceBytes: number): SharedMemory {
  const sizeBytes = PIECES * pieceBytes;
  const hugePages = sizeBytes % HUGE_PAGE_BYTES === 0 && freeHugePages() * HUGE_PAGE_BYTES > sizeBytes;
  return SharedMemory.create({ sizeBytes, hugePages, name: 'vortex-staging', populate: true });
}

export class CopySender extends VerbsMover {
  readonly #pieceBytes: number;
  readonly #staging: SharedMemory;
  readonly #mr: Mr;
  readonly #piecesPerBlock: number;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  #remotePieces = 0;
  /** Pieces that were posted, that are done, and that the receiver has emptied. */
  #posted = 0;
  #done = 0;
  #returned = 0;

  constructor(queue: BlockQueue, path: VerbsPath) {
    super(queue, path);
    this.#pieceBytes = pieceBytesOf(queue);
    this.#piecesPerBlock = queue.blockBytes / this.#pieceBytes;
    this.#staging = createStaging(this.#pieceBytes);
    this.#mr = path.pd.register(this.#staging, { access: access.localWrite });
  }

  override async connect(remote: Path): Promise<void> {
    this.#remote = VerbsPath.regionOf(remote, 'staging');
    this.#remotePieces = Math.floor(this.#remote.sizeBytes / this.#pieceBytes);
    if (this.#remotePieces < 1) throw new StreamFailure('nonsense', 'the receiver offers no room for a piece');
    this.path.connect(remote);
  }

  override prepare(signal: AbortSignal): Promise<void> {
    return this.path.prepare(this.#remote, signal);
  }

  override pump(): boolean {
    this.path.poll(this);
    const { queue } = this;
    for (let turn = 0; turn < PIECES_A_TURN; turn++) {
      const block = Math.floor(this.#posted / this.#piecesPerBlock);
      if (block >= queue.committed || !this.path.hasRoom) return false;
      if (this.#posted >= this.#done + PIECES || this.#posted >= this.#returned + this.#remotePieces) return false;
      this.#post(block);
      this.path.poll(this);
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
    const notice = notificationOf(this.#posted + 1, isBlockOver && length < queue.blockBytes);
    this.#posted++;
    this.path.write(this.#mr, place, bytes, to, this.#remote.rkey, notice);
    // It was copied: the producer may have the block back before it is sent.
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

export class CopyReceiver extends VerbsReceiver {
  readonly #pieceBytes: number;
  readonly #staging: SharedMemory;
  readonly #region: RemoteRegion;
  readonly #piecesPerBlock: number;
  /** Pieces that were copied to their blocks, and that the sender knows to be free. */
  #copied = 0;
  #told = 0;

  constructor(queue: BlockQueue, path: VerbsPath) {
    super(queue, path, pieceBytesOf(queue));
    this.#pieceBytes = pieceBytesOf(queue);
    this.#piecesPerBlock = queue.blockBytes / this.#pieceBytes;
    this.#staging = createStaging(this.#pieceBytes);
    this.#region = path.grant(path.pd.register(this.#staging, { access: access.localWrite | access.remoteWrite }));
  }

  override get offer(): Path {
    return this.path.offer({ staging: this.#region });
  }

  override pump(): boolean {
    this.path.poll(this);
    const { queue } = this;
    for (let turn = 0; turn < PIECES_A_TURN; turn++) {
      const block = Math.floor(this.#copied / this.#piecesPerBlock);
      if (this.#copied >= this.arrived || block >= queue.released + queue.poolBlocks) return false;
      const at = (this.#copied - block * this.#piecesPerBlock) * this.#pieceBytes;
      const place = (this.#copied % PIECES) * this.#pieceBytes;
      // The last piece may be shorter; what follows it in the buffer is nobody's, and the size keeps it from the program.
      copyMemory(queue.pool, queue.offsetOf(block) + at, this.#staging, place, this.#pieceBytes);
      this.#copied++;
      // One that is not full is committed with the size.
      const isLast = this.isLastHere && this.#copied === this.arrived;
      if (this.#copied % this.#piecesPerBlock === 0 && !isLast) queue.commit(block + 1);
      if (this.#copied - this.#told >= PIECES / 4) this.#tell();
      this.path.poll(this);
    }
    return true;
  }

  #tell(): void {
    this.#told = this.#copied;
    this.path.notify(notificationOf(this.#copied, false));
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
