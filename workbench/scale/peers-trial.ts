// One real daemon with many peers that one process plays: what they cost it, and how long news
// take.

import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicNs } from '../../src/native/index.ts';
import { eventually } from '../worlds/index.ts';
import { PeersWorld } from './peers-world.ts';
import { playedEndpoint } from './play-protocol.ts';
import { coresOf, cpuNs, figuresOf, mainCpuNs, type ProcessFigures } from './process-figures.ts';

export interface PeersOptions {
  readonly peers: number;
  /** So many of them the daemon dials. */
  readonly dialed: number;
  readonly endpointsEach: number;
  /** How long the daemon is watched while nothing happens. */
  readonly idleMs: number;
  /** How often each kind of news is measured. */
  readonly times: number;
  readonly signal: AbortSignal;
  readonly onStep?: (what: string) => void;
}

export interface PeersReport {
  readonly peers: number;
  readonly endpointsEach: number;
  /** The daemon without a peer, and when all are up and nothing happens. */
  readonly alone: ProcessFigures;
  readonly idle: ProcessFigures;
  readonly idleCores: number;
  /** From the first entry in etcd until the last peer was up. */
  readonly upMs: number;
  readonly upCpuSeconds: number;
  /** Connections that failed on the way there. */
  readonly attempts: number;
  /** From listen() on the daemon's host until the first and the last of the peers knew. */
  readonly firstKnownMs: readonly number[];
  readonly lastKnownMs: readonly number[];
  /** While programs of the daemon's host listen and close that often a second. */
  readonly listensPerSecond: number;
  readonly listenCores: number;
  readonly listenMainCores: number;
  /** From listen() on the host of a real peer until the daemon's kernel knew. */
  readonly realAnnouncedMs: readonly number[];
  /** The same of a played one; empty where the daemon announces only peers that have links. */
  readonly playedAnnouncedMs: readonly number[];
  /** Of so many played peers the kernel knew the last endpoint. */
  readonly announced: number;
  /** Connections with peers that were lost meanwhile, by the reason. */
  readonly losts: Readonly<Record<string, number>>;
}

const FIRST_PORT = 7000;
const LISTENS_PER_SECOND = 1000;
const POLL_MS = 1;
/** A heap that has grown meanwhile counts; what is still under way does not. */
const SETTLE_MS = 2000;
const LONG_MS = 120_000;
/** Between two measurements: changes that come one after the other are gathered. */
export const ALONE_MS = 1000;

export async function runPeers(options: PeersOptions): Promise<PeersReport> {
  const { peers, dialed, endpointsEach, idleMs, times, signal, onStep = () => {} } = options;
  onStep('starts etcd, a daemon, and the process that plays its peers');
  await using world = await PeersWorld.create({ peers, dialed, endpointsEach, signal });
  const { daemon } = world;
  await sleep(SETTLE_MS, undefined, { signal });
  const alone = figuresOf(daemon.pid);
  onStep(`${peers} peers connect, and announce ${endpointsEach} endpoints each`);
  const startCpuNs = cpuNs(daemon.pid);
  const up = await startPeers(world);
  const upCpuNs = cpuNs(daemon.pid) - startCpuNs;
  onStep('watches the daemon while nothing happens');
  await sleep(SETTLE_MS, undefined, { signal });
  const idleCores = await coresOf(daemon.pid, idleMs, signal);
  const idle = figuresOf(daemon.pid);
  onStep('programs of its host listen');
  const heard = await series(times, signal, (n) => timeToPeers(world, FIRST_PORT + n));
  onStep(`programs of its host listen and close ${LISTENS_PER_SECOND} times a second`);
  const churned = await churn(world, idleMs);
  onStep('programs on the host of a real peer listen');
  await world.startRealPeer();
  await upWithRealPeer(world);
  const realAnnouncedMs = await series(times, signal, (n) => timeToKernel(world, FIRST_PORT + n));
  const announced = announcedCount(world, peers, endpointsEach);
  const playedAnnouncedMs =
    announced === 0 ? [] : await series(times, signal, (n) => playedTimeToKernel(world, peers, n));
  world.order({ order: 'end' });
  const { losts } = await world.played('ended');
  return {
    peers,
    endpointsEach,
    alone,
    idle,
    idleCores,
    upMs: (up.ns - up.startedNs) / 1e6,
    upCpuSeconds: upCpuNs / 1e9,
    attempts: up.attempts,
    firstKnownMs: heard.map(({ firstMs }) => firstMs),
    lastKnownMs: heard.map(({ lastMs }) => lastMs),
    ...churned,
    realAnnouncedMs,
    playedAnnouncedMs,
    announced,
    losts,
  };
}

/** What a daemon has more when all are up and nothing happens. */
export async function addedBytes(options: Parameters<typeof PeersWorld.create>[0]): Promise<number> {
  await using world = await PeersWorld.create(options);
  const settled = async (): Promise<number> => {
    await sleep(SETTLE_MS, undefined, { signal: options.signal });
    return figuresOf(world.daemon.pid).residentBytes;
  };
  const alone = await settled();
  await startPeers(world);
  return (await settled()) - alone;
}

/** All played peers connect. */
export async function startPeers(world: PeersWorld): Promise<Awaited<ReturnType<typeof world.played<'up'>>>> {
  world.order({ order: 'start' });
  return world.played('up');
}

/** One after the other, each when nothing else happens. */
async function series<T>(
  times: number,
  signal: AbortSignal,
  measure: (n: number) => Promise<T>,
): Promise<readonly T[]> {
  const figures: T[] = [];
  for (let n = 0; n < times; n++) {
    await sleep(ALONE_MS, undefined, { signal });
    figures.push(await measure(n));
  }
  return figures;
}

/**
 * A program of the daemon's host listens, until all peers know; and stops, until they know that.
 */
export async function timeToPeers(
  world: PeersWorld,
  port: number,
): Promise<{ readonly firstMs: number; readonly lastMs: number }> {
  const endpoint = `${world.host('m').ipv4}:${port}`;
  const startNs = await world.listen('m', port, true);
  world.order({ order: 'await', endpoint, isThere: true });
  const { firstNs, lastNs } = await world.played('known');
  await world.listen('m', port, false);
  world.order({ order: 'await', endpoint, isThere: false });
  await world.played('known');
  return { firstMs: (firstNs - startNs) / 1e6, lastMs: (lastNs - startNs) / 1e6 };
}

async function churn(
  world: PeersWorld,
  ms: number,
): Promise<Pick<PeersReport, 'listensPerSecond' | 'listenCores' | 'listenMainCores'>> {
  const { pid } = world.daemon;
  const [startMs, startNs, startMainNs] = [performance.now(), cpuNs(pid), mainCpuNs(pid)];
  const count = await world.churn(LISTENS_PER_SECOND, ms);
  const passedMs = performance.now() - startMs;
  return {
    listensPerSecond: (count * 1000) / passedMs,
    listenCores: (cpuNs(pid) - startNs) / 1e6 / passedMs,
    listenMainCores: (mainCpuNs(pid) - startMainNs) / 1e6 / passedMs,
  };
}

async function upWithRealPeer({ daemon }: PeersWorld): Promise<void> {
  const isUp = async (): Promise<boolean> => {
    const { peers } = await daemon.status();
    return peers.some(({ name, state }) => name === 'q' && state === 'up');
  };
  await eventually('the real peer is up', isUp, LONG_MS);
}

async function timeToKernel(world: PeersWorld, port: number): Promise<number> {
  const endpoint = `${world.host('q').ipv4}:${port}`;
  const startNs = await world.listen('q', port, true);
  const ms = await untilAnnounced(world, endpoint, true, startNs);
  await untilAnnounced(world, endpoint, false, await world.listen('q', port, false));
  return ms;
}

async function playedTimeToKernel(world: PeersWorld, peers: number, n: number): Promise<number> {
  const peer = Math.floor((n * peers) / 7) % peers;
  const endpoint = playedEndpoint(peer, 5000 + n);
  const change = async (isThere: boolean): Promise<number> => {
    world.order({ order: 'announce', peer, endpoint, isThere });
    return untilAnnounced(world, endpoint, isThere, (await world.played('announced')).ns);
  };
  const ms = await change(true);
  await change(false);
  return ms;
}

/** Resolves to how long after `startNs` it was so. */
async function untilAnnounced(
  { daemon }: PeersWorld,
  endpoint: string,
  isThere: boolean,
  startNs: number,
): Promise<number> {
  const endMs = performance.now() + LONG_MS;
  while (daemon.isAnnounced(endpoint) !== isThere) {
    if (performance.now() > endMs) throw new Error(`${endpoint} is ${isThere ? 'not' : 'still'} in the kernel's table`);
    await sleep(POLL_MS);
  }
  return (monotonicNs() - startNs) / 1e6;
}

/** Of how many played peers the kernel knows the last endpoint. */
function announcedCount({ daemon }: PeersWorld, peers: number, endpointsEach: number): number {
  if (endpointsEach === 0) return 0;
  const sample = Array.from({ length: peers }, (_, index) => playedEndpoint(index, endpointsEach - 1));
  return sample.filter((endpoint) => daemon.isAnnounced(endpoint)).length;
}
