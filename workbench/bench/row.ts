// A row: one benchmark with its id, and the entrants that are measured in turns in one run.

/** The rivals that ours is measured against. The names are part of the JSON format. */
export type Rival =
  | 'plain'
  | 'ctl'
  | 'alone'
  | 'haproxy'
  | 'memcpy'
  | 'perftest'
  | 'rxe'
  | 'raw'
  | 'array'
  | 'iperf3'
  | 'native';

/** Measures once; resolves to the figure in the row's unit. */
export type Entrant = (signal: AbortSignal) => Promise<number>;

/** The entrants of a row, with everything that was set up for them. */
export interface Contest extends AsyncDisposable {
  readonly ours: Entrant;
  readonly against: Readonly<Partial<Record<Rival, Entrant>>>;
}

/** Ratios are ours over theirs, by rival; of a row without rivals, the figure itself. */
export type Limit = number | Readonly<Partial<Record<Rival, number>>>;

export interface Row {
  readonly id: string;
  readonly what: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  /** What the row must reach, and what is wanted. */
  readonly threshold?: Limit;
  readonly goal?: Limit;
  /** At most so many rounds, where one of them is a whole experiment. */
  readonly rounds?: number;
  /** `roundMs`: how long one measurement should take. */
  prepare(options: { readonly roundMs: number; readonly signal: AbortSignal }): Promise<Contest>;
}

/** With shorter rounds a run is a trial: it shows that rows run, and its figures mean little. */
const TRIAL_MS = 100;

/**
 * The time of a round or of a warm-up that needs at least so long for its figures, but in a trial.
 */
export function longEnough(roundMs: number, leastMs: number): number {
  return roundMs < TRIAL_MS ? roundMs : Math.max(roundMs, leastMs);
}

/** The contest of these entrants, which takes over the resources. */
export function contestOf(resources: AsyncDisposableStack, ours: Entrant, against: Contest['against'] = {}): Contest {
  const kept = resources.move();
  return { ours, against, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}
