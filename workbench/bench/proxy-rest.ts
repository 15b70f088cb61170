// What a proxy costs at rest: processor time with idle connections, memory behind a receiver that
// has stopped.

import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError } from '../../src/errors.ts';
import { type LoadOptions, startPeers, touchJob } from './proxy-loads.ts';
import { type ProxyPath, ProxyWorld, type Wire } from './proxy-world.ts';
import { type Contest, contestOf, type Entrant, longEnough } from './row.ts';
import type { SteerPeers } from './steer-peers.ts';
import { heldBytes, heldMiB, type Stall } from './steer-stall.ts';

const IDLE_CONNECTIONS = 100;
const LEAST_IDLE_MS = 2000;
/**
 * After this time a daemon's threads have collected what their start has left, once and for all.
 */
const START_MS = 8000;
/** After this time the work of the last measurement is over. */
const SETTLE_MS = 300;
const OFFERED_MIB = 1000;
const STALL_MS = { quick: 4000, full: 10_000 } as const;
const FULL_ROUND_MS = 1000;
/**
 * Long enough to run the daemons' code, too short to touch a whole ring: its pages count when a
 * stall touches them.
 */
const LIGHT_MS = 50;

interface Resting {
  readonly world: ProxyWorld;
  readonly peers: SteerPeers;
}

type MakeEntrant = (resting: Resting, path: ProxyPath, options: LoadOptions) => Promise<Entrant>;

function prepareRest(make: MakeEntrant, wire: Wire, path: ProxyPath): (options: LoadOptions) => Promise<Contest> {
  return async (options) => {
    const { signal } = options;
    await using undo = new AsyncDisposableStack();
    const world = undo.use(await ProxyWorld.create({ wire, signal }));
    const peers = undo.use(await startPeers(world, signal));
    await world.carrying(() => peers.run(touchJob, world.addressOf('carried'), signal), signal);
    const ours = await make({ world, peers }, path, options);
    return contestOf(undo, ours);
  };
}

/** The share of a core that the busier of the two proxies uses. */
export function prepareIdle(wire: Wire, path: ProxyPath): (options: LoadOptions) => Promise<Contest> {
  return prepareRest(idle, wire, path);
}

/** The most MiB that were held while the receiver had stopped. */
export function prepareSlow(wire: Wire, path: ProxyPath): (options: LoadOptions) => Promise<Contest> {
  return prepareRest(slow, wire, path);
}

const idle: MakeEntrant = async ({ world, peers }, path, { roundMs, signal }) => {
  const job = { kind: 'idle', amount: IDLE_CONNECTIONS, ms: 0 } as const;
  await world.measured(path, () => peers.run(job, world.addressOf(path), signal));
  const pids = world.pids[path];
  await sleep(longEnough(roundMs, START_MS), undefined, { signal });
  return async () => {
    if (path === 'carried') await checkOpen(world);
    await sleep(SETTLE_MS, undefined, { signal });
    const startNs = process.hrtime.bigint();
    const before = pids.map(cpuNs);
    await sleep(longEnough(roundMs, LEAST_IDLE_MS), undefined, { signal });
    const after = pids.map(cpuNs);
    const passedNs = Number(process.hrtime.bigint() - startNs);
    return Math.max(...after.map((ns, index) => ns - before[index])) / passedNs;
  };
};

async function checkOpen(world: ProxyWorld): Promise<void> {
  const { lanes } = await world.status();
  const open = lanes.reduce((sum, { connections }) => sum + connections, 0);
  if (open >= IDLE_CONNECTIONS) return;
  throw new MillraceError(
    'MILLRACE_ERR_FAILED',
    `measure the proxy: ${open} of ${IDLE_CONNECTIONS} connections are open`,
  );
}

/** The processor time of all threads of a process: the first field of schedstat. */
function cpuNs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const times = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  return times.reduce((sum, time) => sum + Number(time), 0);
}

/**
 * The memory at rest is read once, before the first stall, so that buffers which daemons keep
 * afterwards count as held.
 */
const slow: MakeEntrant = async ({ world, peers }, path, { roundMs, signal }) => {
  const address = world.addressOf(path);
  const light = { kind: 'rtt', amount: 64, ms: LIGHT_MS } as const;
  await world.measured(path, () => peers.run(light, address, signal));
  const holders = { hosts: [world.client, world.server], pids: world.pids[path] };
  const stallMs = roundMs < FULL_ROUND_MS ? STALL_MS.quick : STALL_MS.full;
  const restingBytes = await heldBytes(holders);
  const stall: Stall = { ...holders, peers, offeredMiB: OFFERED_MIB, stallMs, restingBytes, signal };
  return () => world.measured(path, () => heldMiB(stall, address));
};
