// The plan of faults: what breaks, in which order, for how long. Plain data that follows from the seed.

import { Random } from './random.ts';

export const faultKinds = [
  'wire cut',
  'QPs killed',
  'daemon paused',
  'daemon paused long',
  'daemon killed',
  'daemon restarted',
  'etcd restarted',
] as const;

type FaultKind = (typeof faultKinds)[number];
export type HostName = 'a' | 'b';

export interface PlannedFault {
  readonly kind: FaultKind;
  /** Whose wire, QPs or daemon; of etcd it means nothing. */
  readonly host: HostName;
  /** How long it lasts, where that is for us to say. */
  readonly durationMs: number;
  /** Until the next. */
  readonly restMs: number;
  /** The next waits until the peers have met again; otherwise it may come in the middle of the recovery. */
  readonly isAwaited: boolean;
}

interface PlanOptions {
  readonly seed: number;
  /** A daemon that pauses longer is taken for dead by its peer. */
  readonly deadMs: number;
  /** Longest time between two faults. */
  readonly mostRestMs: number;
}

/** Goes on for ever: each round has every kind once, in an order of its own. */
export function* planFaults({ seed, deadMs, mostRestMs }: PlanOptions): Generator<PlannedFault, never> {
  const random = new Random(seed);
  for (;;) {
    for (const kind of random.shuffle(faultKinds)) {
      yield {
        kind,
        host: random.pick(['a', 'b']),
        durationMs: kind === 'daemon paused long' ? deadMs + random.between(500, 1500) : random.between(500, 2000),
        restMs: random.between(200, mostRestMs),
        // With what was reset by then, and what must not be, known.
        isAwaited: random.next() < 0.5 || isDeadly(kind),
      };
    }
  }
}

/** What was done, and when; Date.now(). */
export interface Fault {
  readonly kind: FaultKind | 'packet loss';
  readonly host: string;
  readonly startMs: number;
  /** What was broken works again; what depends on it may take longer. */
  readonly endMs: number;
  /** The daemons have met again; of a fault that was not waited for, as `endMs`. */
  readonly metMs: number;
}

/** Carried connections may not survive it. */
export function isDeadly(kind: Fault['kind']): boolean {
  return kind === 'daemon killed' || kind === 'daemon restarted';
}
