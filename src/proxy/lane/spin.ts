// How long a lane looks for work before it sleeps.

import { availableParallelism } from 'node:os';

/** With fewer processors, a lane that looks takes the time from the programs it waits for. */
const ENOUGH_PROCESSORS = 4;
const DEFAULT_SPIN_US = 20;

export function spinNsOf(spinUs: number | 'auto'): number {
  if (spinUs !== 'auto') return spinUs * 1000;
  return availableParallelism() >= ENOUGH_PROCESSORS ? DEFAULT_SPIN_US * 1000 : 0;
}
