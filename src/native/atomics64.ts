// 64-bit atomics without BigInt: values are halves, and what was there is read from `low64` and
// `high64` afterwards.

import { addon } from './addon.ts';
import type { SharedMemory } from './memory.ts';

const halves = new Uint32Array(addon.scratch.buffer);

/** Adds to eight aligned bytes. Atomic between threads and processes. */
export function fetchAdd64(memory: SharedMemory, offset: number, addLow: number, addHigh: number): void {
  addon.fetchAdd64(memory.id, offset, addLow, addHigh);
}

/** Stores `swap` in eight aligned bytes if they equal `compare`. */
export function compareSwap64(
  memory: SharedMemory,
  offset: number,
  compareLow: number,
  compareHigh: number,
  swapLow: number,
  swapHigh: number,
): void {
  addon.compareSwap64(memory.id, offset, compareLow, compareHigh, swapLow, swapHigh);
}

/**
 * The low half of what the last of these calls found. Read it before anything else of this module
 * is called.
 */
export function low64(): number {
  return halves[0];
}

export function high64(): number {
  return halves[1];
}
