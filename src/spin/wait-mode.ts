// How the two sides of remoting wait for each other, as users choose it.

import { UsageError } from '../errors.ts';

/** `mixed` spins and sleeps as it has learnt; `spin` never sleeps, and `event` never spins. */
export const waitModes = ['mixed', 'spin', 'event'] as const;
export type WaitMode = (typeof waitModes)[number];

/** For SpinPolicy: how long each wait is spun through; undefined where that is learnt. */
export function spinNsOf(mode: WaitMode): number | undefined {
  if (!waitModes.includes(mode)) {
    throw new UsageError(`wait mode '${String(mode)}': expected ${waitModes.join(', ')}`);
  }
  if (mode === 'mixed') return undefined;
  return mode === 'spin' ? Number.POSITIVE_INFINITY : 0;
}
