// Measures a row: all entrants once in each round, in rotating order, so that disturbances of the
// machine affect all alike.

import type { Entrant, Limit, Rival, Row } from './row.ts';

export type Round = Readonly<{ ours: number } & Partial<Record<Rival, number>>>;

export interface Result {
  readonly id: string;
  readonly unit: string;
  readonly ours: number;
  readonly against?: Readonly<Partial<Record<Rival, number>>>;
  readonly ratio?: Readonly<Partial<Record<Rival, number>>>;
  readonly rounds: readonly Round[];
  /** The row's threshold; the name is part of the JSON format. */
  readonly bar?: Limit;
  readonly goal?: Limit;
}

interface MeasureOptions {
  readonly rounds: number;
  readonly roundMs: number;
  readonly signal: AbortSignal;
  readonly onRound?: (done: number, of: number) => void;
}

export async function measureRow(row: Row, options: MeasureOptions): Promise<Result> {
  const { signal } = options;
  await using contest = await row.prepare({ roundMs: options.roundMs, signal });
  const entrants: [name: keyof Round, entrant: Entrant][] = [['ours', contest.ours]];
  for (const [name, entrant] of Object.entries(contest.against)) entrants.push([name as Rival, entrant]);

  const rounds: Round[] = [];
  const count = Math.min(options.rounds, row.rounds ?? options.rounds);
  for (let round = 0; round < count; round++) {
    options.onRound?.(round, count);
    const figures: Partial<Record<keyof Round, number>> = {};
    for (let turn = 0; turn < entrants.length; turn++) {
      signal.throwIfAborted();
      const [name, entrant] = entrants[(round + turn) % entrants.length];
      figures[name] = await entrant(signal);
    }
    rounds.push({ ours: Number.NaN, ...figures });
  }
  return summarize(row, rounds);
}

/**
 * Medians over the rounds. A ratio is the median of the rounds' ratios, whose two figures were
 * measured under the same conditions.
 */
export function summarize(row: Pick<Row, 'id' | 'unit' | 'threshold' | 'goal'>, rounds: readonly Round[]): Result {
  const rivals = Object.keys(rounds[0] ?? {}).filter((name): name is Rival => name !== 'ours');
  const against: Partial<Record<Rival, number>> = {};
  const ratio: Partial<Record<Rival, number>> = {};
  for (const rival of rivals) {
    against[rival] = median(rounds.map((round) => round[rival] ?? Number.NaN));
    ratio[rival] = median(rounds.map((round) => round.ours / (round[rival] ?? Number.NaN)));
  }
  return {
    id: row.id,
    unit: row.unit,
    ours: median(rounds.map((round) => round.ours)),
    ...(rivals.length > 0 && { against, ratio }),
    rounds,
    ...(row.threshold !== undefined && { bar: row.threshold }),
    ...(row.goal !== undefined && { goal: row.goal }),
  };
}

export function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
