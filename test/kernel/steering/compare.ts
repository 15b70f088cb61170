// Compares a behaviour over plain TCP with the same one carried: both ends must observe the same,
// line by line.

import assert from 'node:assert/strict';
import { type CarryingWorld, unlessStarved } from '../../../workbench/worlds/carrying-world.ts';
import type { Observation } from './behaviours-program.ts';
import { connectDifferences } from './differences.ts';
import { comparable, type Family, type Pair } from './pair.ts';

/** Many connections at once: they want hosts that nothing else uses. */
export const crowds: ReadonlySet<string> = new Set(['threads', 'short', 'burst', 'open']);
/** Connections that a behaviour makes to somebody who listens, where that is not one. */
const connections: Readonly<Record<string, number>> = {
  refused: 0,
  'nonblocking-refused': 0,
  reused: 3,
  threads: 400,
  short: 1000,
  burst: 10_000,
  open: 5000,
};
/**
 * Of a listener that has just come or gone, the other host hears a moment later: these may go
 * either way.
 */
const racing: ReadonlySet<string> = new Set(['passing-listener']);
/**
 * Groups of behaviours that wait more than they work. Those of one group run at once, each on ports
 * of its own: none of them holds up another.
 */
export const together: Readonly<Record<string, readonly string[]>> = {
  'behaviours that sleep': [
    'linger-stalled',
    'shutdown-both',
    'epoll-level',
    'epoll-edge',
    'rcvtimeo',
    'waitall',
    'rcvlowat',
    'urgent',
    'unaccepted',
  ],
  'behaviours that wait until every buffer is full': ['epoll-level-out', 'epoll-edge-out'],
};

/**
 * Between pods a way is known soon after its first connect. Between hosts, on a busy machine, some
 * of a hundred listeners are announced a moment after the others.
 */
const LEARN_MS = 5000;

/** Words of the program for what must not happen, whatever the way. */
const problem = /timed out|WRONG|LOST|NOT |stuck|never|only \d+ bytes|nudge/;

/**
 * By behaviour and family: what happened over plain TCP in this process, which is the same in all
 * pairs.
 */
const expectations = new Map<string, Observation>();

async function expectation(pair: Pair, name: string, family: Family): Promise<Observation> {
  const key = `${name} ${family}`;
  const expected = expectations.get(key) ?? (await pair.observe(name, pair.plain, family));
  expectations.set(key, expected);
  return expected;
}

export function compare(pair: Pair<CarryingWorld>, name: string, family: Family): Promise<Observation> {
  return unlessStarved(pair.carrying.world, () => compareOnce(pair, name, family));
}

async function compareOnce(pair: Pair<CarryingWorld>, name: string, family: Family): Promise<Observation> {
  // One after the other: what takes long must not be held up by the other.
  const expected = await expectation(pair, name, family);
  const observed = await pair.observe(name, pair.carrying, family);
  assert.doesNotMatch(`${expected.client} ${expected.server}`, problem);
  assert.deepEqual(comparable(observed), comparable(connectDifferences[name] ?? expected));
  if (connectDifferences[name] !== undefined) assert.notDeepEqual(comparable(observed), comparable(expected));
  return observed;
}

/** How many connections of that behaviour are carried. */
export function connectionsOf(name: string): number {
  return connections[name] ?? 1;
}

/** The same, while nothing else connects, which shows that its connections were carried. */
export function compareCarried(pair: Pair<CarryingWorld>, name: string, family: Family): Promise<Observation> {
  const { world } = pair.carrying;
  const attempt = (): Promise<Observation> => compareOnce(pair, name, family);
  return unlessStarved(world, () => (racing.has(name) ? attempt() : carriedAll(world, connectionsOf(name), attempt)));
}

/** That many connections are carried, once the daemons know the way. */
export async function carriedAll<T>(world: CarryingWorld, count: number, attempt: () => Promise<T>): Promise<T> {
  const endMs = performance.now() + LEARN_MS;
  for (;;) {
    const before = world.carried();
    const result = await attempt();
    const carried = world.carried() - before;
    if (carried === count) return result;
    if (performance.now() > endMs) assert.equal(carried, count, 'connections that were carried');
  }
}
