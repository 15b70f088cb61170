// The set-up of a row of direct.*: one host or two, a load on every path, and the entrants that
// take turns.

import type { StartLoad } from './direct-loads.ts';
import { type DirectPath, type DirectWire, DirectWorld } from './direct-world.ts';
import { type Contest, contestOf, type Entrant, longEnough, type Row } from './row.ts';

export type DirectRival = Exclude<DirectPath, 'direct'>;

interface ContestOptions {
  readonly start: StartLoad;
  /** Between two hosts. Without it, there is one. */
  readonly wire?: DirectWire | undefined;
  readonly rivals?: readonly DirectRival[];
}

/** Of the daemons between two hosts, whose code V8 has to compile. */
const WARM_MS = 4000;

export function prepareDirect({ start, wire, rivals = ['plain'] }: ContestOptions): Row['prepare'] {
  return async ({ roundMs, signal }): Promise<Contest> => {
    await using undo = new AsyncDisposableStack();
    const world = undo.use(await DirectWorld.create({ wire, signal }));
    const { measure, connections } = await start(world, undo, { paths: ['direct', ...rivals], roundMs, signal });
    const entrant =
      (path: DirectPath): Entrant =>
      () =>
        world.measured(path, connections, () => measure(path));
    const ours = entrant('direct');
    const against: Partial<Record<DirectRival, Entrant>> = {};
    for (const rival of rivals) against[rival] = entrant(rival);
    // Runs without measuring, so that every page is there.
    const warmMs = performance.now() + (wire === undefined ? 0 : longEnough(roundMs, WARM_MS));
    do await ours(signal);
    while (performance.now() < warmMs);
    for (const each of Object.values(against)) await each(signal);
    return contestOf(undo, ours, against);
  };
}
