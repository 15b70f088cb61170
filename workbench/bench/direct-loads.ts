// The loads of direct.*, the same on each path: redis and event loops in C, each path with programs
// of its own.

import { runRedisBenchmark, startRedis } from '../worlds/index.ts';
import { cpuSeconds } from './cpu-seconds.ts';
import type { DirectPath, DirectWorld } from './direct-world.ts';
import { longEnough } from './row.ts';
import { type PeerJob, SteerPeers } from './steer-peers.ts';
import { LineProgram } from './steer-program.ts';

interface LoadOptions {
  readonly paths: readonly DirectPath[];
  readonly roundMs: number;
  readonly signal: AbortSignal;
}

interface Load {
  readonly measure: (path: DirectPath) => Promise<number>;
  /** At least so many connections of one measurement become direct; 0: none does. */
  readonly connections: number;
}

/** What it starts ends with `undo`. */
export type StartLoad = (world: DirectWorld, undo: AsyncDisposableStack, options: LoadOptions) => Promise<Load>;

interface RedisSize {
  readonly clients: number;
  readonly pipeline?: number;
}

const ports = { direct: 7102, plain: 7101, ctl: 7103 } as const satisfies Record<DirectPath, number>;
const tests = ['get', 'set'] as const;
const LEAST_ROUND_MS = 500;
/** Connections are made anew for each round, so rounds of many take longer. */
const ROUND_MS_PER_CLIENT = 4;
/**
 * The fewest requests of a client, and of all, in each test: those that become direct need some
 * before, and the figure is to be of those after.
 */
const LEAST_PER_CLIENT = { direct: 100, plain: 20, ctl: 20 } as const;
const LEAST_PER_TEST = { direct: 10_000, plain: 1000, ctl: 1000 } as const;
/** Also in a trial, where connections that are to be direct need the time to become so. */
const LEAST_TRIAL_MS = 300;
/** Until it was measured. */
const FIRST_PER_SECOND = 30_000;
const REQUESTS_COUNTED = 100_000;

/** Requests per second over GET and SET, as many of each. */
export function redisLoad(size: RedisSize): StartLoad {
  return async (world, undo, options) => {
    const run = await startRedisPaths(world, undo, size, options);
    const measure = async (path: DirectPath): Promise<number> => (await run(path)).perSecond;
    return { measure, connections: size.clients * tests.length };
  };
}

/**
 * Processor time of all processes of both hosts, programs and daemons, for 100,000 requests, in s.
 */
export const redisCpuLoad: StartLoad = async (world, undo, options) => {
  const clients = 30;
  const run = await startRedisPaths(world, undo, { clients }, options);
  const measure = async (path: DirectPath): Promise<number> => {
    const before = cpuSeconds(world.hosts.plain);
    const { requests } = await run(path);
    return ((cpuSeconds(world.hosts.plain) - before) * REQUESTS_COUNTED) / requests;
  };
  return { measure, connections: clients * tests.length };
};

/** The same load while a program on each host never sleeps. */
export function besideBusyLoops(start: StartLoad): StartLoad {
  return async (world, undo, options) => {
    const { client, server } = world.hosts.plain;
    for (const host of [client, server]) undo.use(new LineProgram(host, 'sh', ['-c', 'while :; do :; done']));
    return start(world, undo, options);
  };
}

/** A pair of event loops in C for each path. */
export function peerLoad(kind: PeerJob['kind'], amount: number, connections: number): StartLoad {
  return async (world, undo, options) => {
    const run = await startPeerPaths(world, undo, options);
    const job = { kind, amount, ms: Math.max(LEAST_TRIAL_MS, longEnough(options.roundMs, LEAST_ROUND_MS)) };
    return { measure: (path) => run(path, job), connections };
  };
}

/**
 * None of the connections lives long enough to become direct. One that does, before all others,
 * shows that these programs have the library.
 */
export function connectsLoad(atATime: number): StartLoad {
  return async (world, undo, options) => {
    const run = await startPeerPaths(world, undo, options);
    await world.measured('direct', 1, () => run('direct', { kind: 'rtt', amount: 64, ms: LEAST_ROUND_MS }));
    const job = { kind: 'connects', amount: atATime, ms: longEnough(options.roundMs, LEAST_ROUND_MS) } as const;
    return { measure: (path) => run(path, job), connections: 0 };
  };
}

async function startPeerPaths(
  { hosts }: DirectWorld,
  undo: AsyncDisposableStack,
  { paths, signal }: LoadOptions,
): Promise<(path: DirectPath, job: PeerJob) => Promise<number>> {
  const peers = new Map<DirectPath, SteerPeers>();
  for (const path of paths) peers.set(path, undo.use(await SteerPeers.start(hosts[path], [ports[path]], signal)));
  return async (path, job) => (await peers.get(path)?.run(job, ports[path], signal)) ?? Number.NaN;
}

/** The requests of a round are so many on each path that it takes about as long. */
async function startRedisPaths(
  { hosts }: DirectWorld,
  undo: AsyncDisposableStack,
  { clients, pipeline = 1 }: RedisSize,
  { paths, roundMs, signal }: LoadOptions,
): Promise<(path: DirectPath) => Promise<{ perSecond: number; requests: number }>> {
  for (const path of paths) undo.use(await startRedis(hosts[path].server, ports[path]));
  const testSeconds =
    longEnough(roundMs, Math.max(LEAST_ROUND_MS, clients * ROUND_MS_PER_CLIENT)) / tests.length / 1000;
  const lastPerSecond = new Map<DirectPath, number>();
  return async (path) => {
    const { client, server } = hosts[path];
    const least = Math.max(clients * pipeline * LEAST_PER_CLIENT[path], LEAST_PER_TEST[path]);
    const requests = Math.ceil(Math.max(least, (lastPerSecond.get(path) ?? FIRST_PER_SECOND) * testSeconds));
    const load = { tests, clients, requests, pipeline, payloadBytes: 2048 };
    const figures = await runRedisBenchmark(client, { host: server, port: ports[path] }, load, signal);
    const perSecond = figures.length / figures.reduce((sum, figure) => sum + 1 / figure.requestsPerSecond, 0);
    lastPerSecond.set(path, perSecond);
    return { perSecond, requests: requests * tests.length };
  };
}
