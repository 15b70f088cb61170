// What a soak and its traffic programs say to each other: one JSON document a line.

import type { Ending, Outcome } from './conversation.ts';
import { behaviours } from './script.ts';

export interface TrafficOrders {
  /** Both programs listen there. */
  readonly port: number;
  /** Addresses of the other host. */
  readonly targets: readonly [string, ...string[]];
  /** How many at once are to be under way from here. */
  readonly connections: number;
  readonly seed: number;
}

export type Row = Record<Ending, number> & { bytes: number };
/** Ends of connections, by behaviour. */
export type TrafficTotals = Record<Outcome['behaviour'], Row>;

export type TrafficEvent =
  | { readonly event: 'listening' }
  | { readonly event: 'outcome'; readonly outcome: Outcome }
  /** The last call is over. */
  | { readonly event: 'called' }
  | { readonly event: 'totals'; readonly totals: TrafficTotals };

const newRow = (): Row => ({ exact: 0, reset: 0, wrong: 0, stuck: 0, failed: 0, bytes: 0 });

export function newTotals(): TrafficTotals {
  const all = [...behaviours, 'unknown' as const];
  return Object.fromEntries(all.map((behaviour) => [behaviour, newRow()])) as TrafficTotals;
}

/** Counts one's totals into the other's. */
export function addTotals(into: TrafficTotals, more: TrafficTotals): void {
  for (const behaviour of [...behaviours, 'unknown' as const]) {
    const [row, other] = [into[behaviour], more[behaviour]];
    for (const key of Object.keys(row) as (keyof Row)[]) row[key] += other[key];
  }
}
