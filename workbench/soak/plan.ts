// The plan of faults as plain data: what breaks, in which order, for how long. It follows from the
// seed.

import { Random } from '../worlds/index.ts';

const daemonFaults = [
  'wire cut',
  'QPs killed',
  'daemon paused',
  'daemon paused long',
  'daemon killed',
  'daemon restarted',
] as const;

/** What breaks while connections are carried. */
export const faultKinds = [...daemonFaults, 'etcd restarted'] as const;
/** And while they are direct: their programs as well. */
export const directFaultKinds = [...daemonFaults, 'control cut', 'program paused', 'program killed'] as const;
/** In short phases: a reset that a cut wire has lost is waited for until it counts as stuck. */
export const quickFaultKinds = directFaultKinds.filter((kind) => kind !== 'wire cut' && kind !== 'daemon paused long');

type FaultKind = (typeof faultKinds)[number] | (typeof directFaultKinds)[number];
export type HostName = 'a' | 'b';

export interface PlannedFault {
  readonly kind: FaultKind;
  /** The host whose wire, QPs, daemon or program break; without meaning for etcd. */
  readonly host: HostName;
  /** How long the fault lasts, if that can be chosen. */
  readonly durationMs: number;
  /** The time until the next fault. */
  readonly restMs: number;
  /**
   * Whether the next fault waits until the peers have met again; otherwise it may hit during the
   * recovery.
   */
  readonly isAwaited: boolean;
}

interface PlanOptions {
  readonly seed: number;
  readonly kinds?: readonly FaultKind[];
  /** Its peer takes a daemon that pauses for longer for dead. */
  readonly deadMs: number;
  /** Longest time between two faults. */
  readonly mostRestMs: number;
}

/** An endless sequence: each round has every kind once, in an order of its own. */
export function* planFaults(options: PlanOptions): Generator<PlannedFault, never> {
  const { seed, kinds = faultKinds, deadMs, mostRestMs } = options;
  const random = new Random(seed);
  for (;;) {
    for (const kind of random.shuffle(kinds)) {
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

/** A fault that was inflicted, and when; Date.now(). */
export interface Fault {
  readonly kind: FaultKind | 'packet loss';
  readonly host: string;
  readonly startMs: number;
  /** When the broken part worked again; what depends on it may take longer. */
  readonly endMs: number;
  /** When the daemons had met again; `endMs` if that was not waited for. */
  readonly metMs: number;
}

/** Whether carried connections may be reset by it. */
export function isDeadly(kind: Fault['kind']): boolean {
  return kind === 'daemon killed' || kind === 'daemon restarted';
}
