// The calling thread: where it runs, what it is called, and its clock.

import { addon } from './addon.ts';
import { check, checkValue } from './result.ts';

/** Keeps the calling thread on one processor. */
export function pinThread(cpu: number): void {
  check(addon.pin(cpu), 'sched_setaffinity', `processor ${cpu}`);
}

/** The processors the calling thread may run on. */
export function threadAffinity(): readonly number[] {
  return checkValue(addon.affinity(), 'sched_getaffinity');
}

/** At most 15 bytes: what `ps -L` and `perf` show. */
export function nameThread(name: string): void {
  check(addon.setName(name), 'pthread_setname_np', name);
}

/** The kernel's number of the calling thread. */
export function threadId(): number {
  return addon.threadId();
}

const scratch = addon.scratch;

/**
 * The monotonic clock in ns: the same for all processes of the machine, and without a BigInt.
 * Allocates nothing.
 */
export function monotonicNs(): number {
  addon.clock();
  return scratch[0];
}

/**
 * Lets run who waits for the processor of the calling thread; how long it was away, in ns.
 * Allocates nothing.
 */
export function yieldProcessor(): number {
  addon.yieldProcessor();
  return scratch[0];
}
