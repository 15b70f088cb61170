// What a benchmark is: an id from the table of targets, and entrants that are measured in turns in one run.

/** Whom we measure ourselves against. The names are part of the JSON format. */
export type Rival = 'plain' | 'haproxy' | 'memcpy' | 'perftest' | 'rxe' | 'raw' | 'array' | 'iperf3' | 'native';

/** Measures once and gives the figure in the row's unit. */
export type Entrant = (signal: AbortSignal) => Promise<number>;

/** What a row has set up for its measurements, and takes down afterwards. */
export interface Contest extends AsyncDisposable {
  readonly ours: Entrant;
  readonly against: Readonly<Partial<Record<Rival, Entrant>>>;
}

/** Ratios are ours over theirs, by rival; of a row without rivals, the figure itself. */
export type Threshold = number | Readonly<Partial<Record<Rival, number>>>;

export interface Row {
  readonly id: string;
  readonly what: string;
  readonly unit: string;
  readonly better: 'higher' | 'lower';
  /** What it must reach, and what we are after. */
  readonly bar?: Threshold;
  readonly goal?: Threshold;
  /** `roundMs`: how long one measurement should take. */
  prepare(options: { readonly roundMs: number; readonly signal: AbortSignal }): Promise<Contest>;
}
