// Decides which connections ended as they may: exactly, or with a reset while a daemon on their path was dead.

import type { Outcome } from './conversation.ts';
import { type Fault, isDeadly } from './plan.ts';

/** What one program wrote down may be a little earlier or later than what another did. */
const SLACK_MS = 100;

export interface Bounds {
  /** After the daemons have met again, programs that had to do with the dead one are reset within so long. */
  readonly lateMs: number;
  /** On a machine that does much else, a pause or a cut may last longer than planned: from here on streams need not survive it. */
  readonly tooLongMs: number;
}

/** Why it is not right; null when it is. */
export function complaint(outcome: Outcome, faults: readonly Fault[], bounds: Bounds): string | null {
  const { end, behaviour, seed, ending, detail, startMs, endMs } = outcome;
  if (ending === 'exact' || (ending === 'reset' && isExcused(outcome, faults, bounds))) return null;
  const lived = `from ${timeText(startMs)} to ${timeText(endMs)}`;
  return `${behaviour} (seed ${seed}) at its ${end} ${lived}: ${ending}: ${detail}`;
}

function isExcused({ startMs, endMs }: Outcome, faults: readonly Fault[], bounds: Bounds): boolean {
  return faults.some((fault) => {
    const [deadMs, metMs] = [fault.startMs - SLACK_MS, fault.metMs + SLACK_MS];
    // It was there while the daemon was dead or not known to live again, and was reset in time.
    return mayReset(fault, bounds) && startMs <= metMs && endMs >= deadMs && endMs <= metMs + bounds.lateMs;
  });
}

export function mayReset({ kind, startMs, endMs }: Omit<Fault, 'metMs'>, { tooLongMs }: Bounds): boolean {
  return isDeadly(kind) || (kind !== 'packet loss' && kind !== 'etcd restarted' && endMs - startMs >= tooLongMs);
}

/** Of the day, as logs have it. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString().slice(11, 23);
}
