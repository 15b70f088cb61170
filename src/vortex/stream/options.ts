// The options of a stream's memory, with their defaults and checks, and the queue that is made of
// them.

import { readFileSync } from 'node:fs';
import { SystemError, UsageError } from '../../errors.ts';
import { HUGE_PAGE_BYTES } from '../../native/index.ts';
import { BlockQueue } from './block-queue.ts';

export interface StreamOptions {
  /**
   * The unit that is mapped, sent and released: a power of two, 64 KiB to 64 MiB. Default 4 MiB.
   */
  readonly blockBytes?: number | undefined;
  /** How many blocks the pool has: all the memory that the stream uses at this end. Default 8. */
  readonly poolBlocks?: number | undefined;
  /** How many blocks behind the highest one touched the program may come back to. Default 1. */
  readonly revisitBlocks?: number | undefined;
  /**
   * How many blocks are mapped before they are touched. Default 1 at a consumer, 0 at a producer: a
   * block that was mapped ahead for a producer, and that it skips, may arrive with bytes of an
   * earlier block instead of zeroes.
   */
  readonly readAheadBlocks?: number | undefined;
  /** `auto`: if the system has enough of them free. Default `auto`. */
  readonly hugePages?: 'auto' | 'always' | 'never' | undefined;
  /** The length of the window where the length of the stream is unknown. Default 32 GiB. */
  readonly maxSizeBytes?: number | undefined;
  /**
   * A page fault of the window, or a wait for a block, that takes longer fails the stream. Default
   * 0: no limit.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * Fill each block with zeroes before a producer gets it, so that what it does not write arrives
   * as zeroes. Costs a pass over the memory.
   */
  readonly clearBlocks?: boolean | undefined;
}

export type CheckedOptions = { readonly [name in keyof Required<StreamOptions>]: NonNullable<StreamOptions[name]> };

const GIB = 2 ** 30;

const defaultOptions = {
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
      `a pool of ${checked.poolBlocks} blocks: revisitBlocks ${checked.revisitBlocks}, the block in use and ` +
        `readAheadBlocks ${checked.readAheadBlocks} need ${needed}; raise poolBlocks`,
    );
  }
  return checked;
}

function checkCount(name: string, value: number, most: number): void {
  if (Number.isSafeInteger(value) && value >= 0 && value <= most) return;
  throw new UsageError(`${name} ${value}: it must be a whole number from 0 to ${most}`);
}

/**
 * The queue of a new stream, with huge pages as `hugePages` says. Their lack is an error only for
 * `always`.
 */
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
      // Another process has taken them since.
      if (!(error instanceof SystemError)) throw error;
    }
  }
  return BlockQueue.create({ ...geometry, hugePages: hugePages !== 'never' && canBeHuge ? 'transparent' : false });
}

/** Huge pages of 2 MiB that are neither in use nor reserved. */
export function freeHugePages(): number {
  const text = readFileSync('/proc/meminfo', 'utf8');
  const count = (name: string): number => Number(new RegExp(`^${name}:\\s+(\\d+)$`, 'm').exec(text)?.[1] ?? 0);
  const isTwoMib = /^Hugepagesize:\s+2048 kB$/m.test(text);
  return isTwoMib ? Math.max(0, count('HugePages_Free') - count('HugePages_Rsvd')) : 0;
}
