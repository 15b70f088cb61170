// Sleeping on a word of shared memory until another thread or process changes it. Blocks the
// calling thread.

import { constants } from 'node:os';
import { addon } from './addon.ts';
import type { SharedMemory } from './memory.ts';
import { check } from './result.ts';

export type FutexResult = 'woken' | 'changed' | 'timeout';

const { EAGAIN, EINTR, ETIMEDOUT } = constants.errno;

/**
 * Sleeps while the 32-bit word at `offset` is `expected`. The kernel compares under its own lock,
 * so a waker that stores first and wakes after is never missed. May return 'woken' without cause:
 * load the word again.
 */
export function futexWait(memory: SharedMemory, offset: number, expected: number, timeoutNs = -1): FutexResult {
  const result = addon.futexWait(memory.id, offset, expected, timeoutNs);
  if (result === -EAGAIN) return 'changed';
  if (result === -ETIMEDOUT) return 'timeout';
  if (result === -EINTR) return 'woken';
  check(result, 'futex');
  return 'woken';
}

/** Wakes up to `count` sleepers; returns how many there were. */
export function futexWake(memory: SharedMemory, offset: number, count = 1): number {
  return check(addon.futexWake(memory.id, offset, count), 'futex');
}
