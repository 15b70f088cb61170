// Decides which connections ended rightly: exactly, or with a reset while a daemon on their path
// was dead.

import type { Outcome } from './conversation.ts';
import { type Fault, isDeadly } from './plan.ts';

/** The clocks of two programs' reports may differ by this much. */
const SLACK_MS = 100;
/** Behaviours in which one end waits for a reset. */
const resets = new Set<Outcome['behaviour']>(['resetByClient', 'resetByServer', 'abort']);

export interface Bounds {
  /** How long after the daemons have met again connections of the dead one may be reset. */
  readonly lateMs: number;
  /**
   * On a busy machine a pause or a cut may last longer than planned: from this length on streams
   * need not survive it.
   */
  readonly tooLongMs: number;
}

/** The failure; null when it ended rightly. */
export function complaint(outcome: Outcome, faults: readonly Fault[], bounds: Bounds): string | null {
  const { ending } = outcome;
  return ending === 'exact' || (ending === 'reset' && isExcused(outcome, faults, bounds)) ? null : textOf(outcome);
}

/** The same of a direct connection, which goes on by TCP whatever happens to daemons. */
export function directComplaint(outcome: Outcome, faults: readonly Fault[]): string | null {
  return outcome.ending === 'exact' || isOfTcp(outcome, faults) ? null : textOf(outcome);
}

/**
 * Who resets sends nothing again: what a cut wire has lost, bytes or the reset itself, never comes.
 */
function isOfTcp({ ending, behaviour, startMs, endMs }: Outcome, faults: readonly Fault[]): boolean {
  if ((ending !== 'stuck' && ending !== 'reset') || !resets.has(behaviour)) return false;
  return faults.some((fault) => fault.kind === 'wire cut' && startMs <= fault.endMs && endMs >= fault.startMs);
}

function textOf({ end, behaviour, seed, ending, detail, startMs, endMs }: Outcome): string {
  const lived = `from ${timeText(startMs)} to ${timeText(endMs)}`;
  return `${behaviour} (seed ${seed}) at its ${end} ${lived}: ${ending}: ${detail}`;
}

function isExcused({ startMs, endMs }: Outcome, faults: readonly Fault[], bounds: Bounds): boolean {
  return faults.some((fault) => {
    const [deadMs, metMs] = [fault.startMs - SLACK_MS, fault.metMs + SLACK_MS];
    // It was open while the daemon was dead or not connected again, and was reset in time.
    return mayReset(fault, bounds) && startMs <= metMs && endMs >= deadMs && endMs <= metMs + bounds.lateMs;
  });
}

export function mayReset({ kind, startMs, endMs }: Omit<Fault, 'metMs'>, { tooLongMs }: Bounds): boolean {
  return isDeadly(kind) || (kind !== 'packet loss' && kind !== 'etcd restarted' && endMs - startMs >= tooLongMs);
}

/** The time of day, as in logs. */
export function timeText(ms: number): string {
  return new Date(ms).toISOString().slice(11, 23);
}
