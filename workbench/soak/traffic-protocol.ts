// The messages between a soak and its traffic programs: one JSON document per line.

import type { Ending, Outcome } from './conversation.ts';
import { behaviours } from './script.ts';

export interface TrafficOrders {
  /** The port that both programs listen on. */
  readonly port: number;
  /** Addresses of the other host. */
  readonly targets: readonly [string, ...string[]];
  /** How many connections to keep open from here. */
  readonly connections: number;
  readonly seed: number;
}

type Row = Record<Ending, number> & { bytes: number };
/** Counts of ends of connections, by behaviour. */
export type TrafficTotals = Record<Outcome['behaviour'], Row>;

export type TrafficEvent =
  | { readonly event: 'listening' }
  | { readonly event: 'outcome'; readonly outcome: Outcome }
  /** The last connection of this client is over. */
  | { readonly event: 'called' }
  | { readonly event: 'totals'; readonly totals: TrafficTotals };

const newRow = (): Row => ({ exact: 0, reset: 0, wrong: 0, stuck: 0, failed: 0, bytes: 0 });

export function newTotals(): TrafficTotals {
  const all = [...behaviours, 'unknown' as const];
  return Object.fromEntries(all.map((behaviour) => [behaviour, newRow()])) as TrafficTotals;
}

/** Adds the totals of one to those of the other. */
export function addTotals(into: TrafficTotals, more: TrafficTotals): void {
  for (const behaviour of [...behaviours, 'unknown' as const]) {
    const [row, other] = [into[behaviour], more[behaviour]];
    for (const key of Object.keys(row) as (keyof Row)[]) row[key] += other[key];
  }
}
