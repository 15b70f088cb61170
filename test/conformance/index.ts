// The conformance suite: what every provider must do, in one call.

import { channels } from './channels.ts';
import { flags } from './flags.ts';
import { keys } from './keys.ts';
import { lifetimes } from './lifetimes.ts';
import { localErrors } from './local-errors.ts';
import { opcodes } from './opcodes.ts';
import { qpStateMachine } from './qp-states.ts';
import { queues } from './queues.ts';
import { remoteErrors } from './remote-errors.ts';
import { retries } from './retries.ts';
import { sharedReceives } from './srq.ts';
import type { ConformanceTarget } from './target.ts';

export { preferredGid } from './connect.ts';
export type { ConformanceTarget, DevicePair } from './target.ts';

const parts = {
  qpStateMachine,
  lifetimes,
  opcodes,
  flags,
  localErrors,
  remoteErrors,
  retries,
  queues,
  channels,
  sharedReceives,
  keys,
} as const;

export type Part = keyof typeof parts;

/**
 * Those that say something about what goes over the wire, for runs between two kinds of devices.
 */
export const wireParts: readonly Part[] = ['opcodes', 'flags', 'remoteErrors', 'retries', 'keys'];

/**
 * Declares the tests of the suite, all of them unless said otherwise; call it at the top of a test
 * file.
 */
export function conformance(target: ConformanceTarget, chosen = Object.keys(parts) as readonly Part[]): void {
  for (const part of chosen) parts[part](target);
}
