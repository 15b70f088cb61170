// The heaps of a daemon's threads. Left alone, V8 lets each grow by hundreds of MiB of garbage
// before it collects, and gives nothing back in a thread that never idles in Node's loop, as a lane
// does not.

import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import type { ResourceLimits } from 'node:worker_threads';
import { addon } from './addon.ts';

const MIB = 2 ** 20;
/** A heap is collected when it has grown by so much of what was alive, or by some MiB. */
const GROWTH_PERCENT = 20;
/**
 * A heap that has grown by less since it was collected is left alone: the young generation of a
 * thread that idles grows by some MiB within a minute, and collecting it takes longer than all else
 * that such a thread does.
 */
const LEAST_GROWTH_BYTES = 12 * MIB;

/**
 * The young generation is three semi-spaces, of 4 MiB here: most short connections die there. The
 * limit of the old one is a backstop, at which the thread ends.
 */
export const laneHeap: ResourceLimits = { maxYoungGenerationSizeMb: 12, maxOldGenerationSizeMb: 2048 };

/** For all threads of this process, also those that run already. */
export function limitHeapGrowth(): void {
  setFlagsFromString(`--heap-growing-percent=${GROWTH_PERCENT}`);
}

/** Collects the heap of a thread that idles, which takes some 10 ms. */
export class IdleCollector {
  /** Of the heap when it was last collected. */
  #bytes = 0;
  collections = 0;

  /**
   * To be called about once a second, or less often, while the thread has next to nothing to do.
   */
  onIdle(): void {
    if (residentHeapBytes() < this.#bytes + LEAST_GROWTH_BYTES) return;
    collectGarbage();
    this.#bytes = residentHeapBytes();
    this.collections++;
  }
}

function residentHeapBytes(): number {
  return getHeapStatistics().total_physical_size;
}

/** Of this thread's heap, and of malloc. */
function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as (how: object) => void;
  setFlagsFromString('--no-expose-gc');
  // Other flavors keep the pages for the next objects.
  collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  addon.trimMalloc();
}
