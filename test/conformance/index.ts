// The conformance suite: what every provider must do, in one call.

import { channels } from './channels.ts';
import { flags } from './flags.ts';
import { keys } from './keys.ts';
import { ladder } from './ladder.ts';
import { lifetimes } from './lifetimes.ts';
import { localErrors } from './local-errors.ts';
import { opcodes } from './opcodes.ts';
import { queues } from './queues.ts';
import { remoteErrors } from './remote-errors.ts';
import { retries } from './retries.ts';
import { sharedReceives } from './srq.ts';
import type { ConformanceTarget } from './target.ts';

export { preferredGid } from './connect.ts';
export type { ConformanceTarget, DevicePair, Feature } from './target.ts';

/** Declares all tests of the suite; call it at the top of a test file. */
export function conformance(target: ConformanceTarget): void {
  ladder(target);
  lifetimes(target);
  opcodes(target);
  flags(target);
  localErrors(target);
  remoteErrors(target);
  retries(target);
  queues(target);
  channels(target);
  sharedReceives(target);
  keys(target);
}
