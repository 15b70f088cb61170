// What a user may say about a stream's memory, and the pool that comes of it.

import { readFileSync } from 'node:fs';
import { SystemError, UsageError } from '../../errors.ts';
import { HUGE_PAGE_BYTES } from '../../native/index.ts';
import { BlockQueue } from './block-queue.ts';

export interface StreamOptions {
  /** What is mapped, sent and given back at once: a power of two, 64 KiB to 64 MiB. Default 4 MiB. */
  readonly blockBytes?: number | undefined;
  /** The pool's blocks: all the memory that the stream uses at this end. Default 8. */
  readonly poolBlocks?: number | undefined;
  /** How many blocks behind the highest one touched the program may come back to. Default 1. */
  readonly revisitBlocks?: number | undefined;
  /**
   * How many blocks are mapped ahead of a consumer. Default 1. A producer has none unless it says so here: then a
   * block that it skips may arrive with bytes of an earlier one instead of zeroes.
   */
  readonly readAheadBlocks?: number | undefined;
  /** `auto`: where the system has some free. Default `auto`. */
  readonly hugePages?: 'auto' | 'always' | 'never' | undefined;
  /** How long the window of a stream of unknown length is. Default 32 GiB. */
  readonly maxSizeBytes?: number | undefined;
  /** A touch of the window, or a wait for a block, that takes longer fails the stream. Default: it takes what it takes. */
  readonly timeoutMs?: number | undefined;
  /** Clear each block before a producer's program gets it: what it leaves unwritten arrives as zeroes. Costs a pass over the memory. */
  readonly clearBlocks?: boolean | undefined;
}

export type CheckedOptions = { readonly [name in keyof Required<StreamOptions>]: NonNullable<StreamOptions[name]> };

const GIB = 2 ** 30;

export const defaultOptions = {
  blockBytes: 4 * 1024 * 1024,
  poolBlocks: 8,
  revisitBlocks: 1,
  readAheadBlocks: 1,
  hugePages: 'auto',
  maxSizeBytes: 32 * GIB,
  timeoutMs: 0,
  clearBlocks: false,
} as const satisfies StreamOptions;

/** Fills in the defaults and refuses what cannot work. */
export function checkOptions(options: StreamOptions = {}): CheckedOptions {
  const given = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined));
  const checked: CheckedOptions = { ...defaultOptions, ...given };
  checkCount('revisitBlocks', checked.revisitBlocks, 65_535);
  checkCount('readAheadBlocks', checked.readAheadBlocks, 65_535);
  checkCount('timeoutMs', checked.timeoutMs, 2 ** 31 - 1);
  checkCount('maxSizeBytes', checked.maxSizeBytes, 2 ** 46);
  const needed = checked.revisitBlocks + checked.readAheadBlocks + 1;
  if (checked.poolBlocks < needed) {
    throw new UsageError(
      `a pool of ${checked.poolBlocks} blocks: ${checked.revisitBlocks} to come back to, the one in use and ` +
        `${checked.readAheadBlocks} read ahead need ${needed}; raise poolBlocks`,
    );
  }
  return checked;
}

function checkCount(name: string, value: number, most: number): void {
  if (Number.isSafeInteger(value) && value >= 0 && value <= most) return;
  throw new UsageError(`${name} ${value}: it must be a whole number from 0 to ${most}`);
}

/** A queue for a new stream: huge pages as asked for, and never a failure for lack of them unless they must be. */
export function createStreamQueue(sizeBytes: number | undefined, options: StreamOptions = {}): BlockQueue {
  const { blockBytes, poolBlocks, hugePages } = checkOptions(options);
  const geometry = { blockBytes, poolBlocks, sizeBytes };
  const canBeHuge = blockBytes % HUGE_PAGE_BYTES === 0;
  if (hugePages === 'always') {
    if (!canBeHuge) throw new UsageError(`huge pages for blocks of ${blockBytes} bytes: blocks must be 2 MiB or more`);
    return BlockQueue.create({ ...geometry, hugePages: true });
  }
  if (hugePages === 'auto' && canBeHuge && freeHugePages() * HUGE_PAGE_BYTES >= blockBytes * poolBlocks) {
    try {
      return BlockQueue.create({ ...geometry, hugePages: true });
    } catch (error) {
      // Somebody else took them meanwhile.
      if (!(error instanceof SystemError)) throw error;
    }
  }
  return BlockQueue.create({ ...geometry, hugePages: hugePages !== 'never' && canBeHuge ? 'transparent' : false });
}

/** Huge pages that nobody has and nobody was promised. */
export function freeHugePages(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const count = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)$`, 'm').exec(text)?.[1] ?? 0);
  const isTwoMib = /^Hugepagesize:\s+2048 kB$/m.test(text);
  return isTwoMib ? Math.max(0, count('HugePages_Free') - count('HugePages_Rsvd')) : 0;
}
