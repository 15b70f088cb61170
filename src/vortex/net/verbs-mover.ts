// What the strategies on RDMA have in common: how they are set up, and how long a block is.

import type { BlockQueue } from '../block-queue.ts';
import type { Mover } from './mover.ts';
import type { Path } from './protocol.ts';

export interface VerbsMover extends Mover {
  /** What the peer must know. */
  readonly offer: Path;
  /** Climbs: from now on the peer may write and speak. */
  connect(remote: Path): Promise<void>;
  /** After the peer has climbed, too. */
  prepare(signal: AbortSignal): Promise<void>;
}

/** Only for blocks that are committed: whether one is the last and not full is known by then. */
export function lengthOfBlock(queue: BlockQueue, block: number): number {
  const { blockBytes, sizeBytes = Number.MAX_SAFE_INTEGER } = queue;
  return Math.min(blockBytes, sizeBytes - block * blockBytes);
}
