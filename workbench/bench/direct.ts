// Rows direct.*: programs of one host whose connections are direct, next to the same programs on
// plain loopback TCP.

import { runRedisBenchmark, startRedis } from '../worlds/index.ts';
import { type DirectPath, DirectWorld } from './direct-world.ts';
import { type Contest, contestOf, type Entrant, longEnough, type Row } from './row.ts';
import { SteerPeers } from './steer-peers.ts';

type Measure = (path: DirectPath) => Promise<number>;

interface Load {
  readonly measure: Measure;
  /** At least so many connections of one measurement become direct. */
  readonly connections: number;
}

type StartLoad = (
  world: DirectWorld,
  undo: AsyncDisposableStack,
  options: { readonly roundMs: number; readonly signal: AbortSignal },
) => Promise<Load>;

const paths = ['direct', 'plain'] as const;
const ports = { direct: 7102, plain: 7101 } as const;
const LEAST_ROUND_MS = 500;
const REDIS_CLIENTS = 30;
/** So that each path takes about as long as the round should. */
const REDIS_PER_MS = { direct: 300, plain: 30 } as const;

/** Requests per second over GET and SET, as many of each. */
const redisLoad: StartLoad = async ({ host, as }, undo, { roundMs, signal }) => {
  for (const path of paths) undo.use(await startRedis(host, ports[path], as[path]));
  const ms = longEnough(roundMs, LEAST_ROUND_MS);
  const measure: Measure = async (path) => {
    const requests = ms * REDIS_PER_MS[path];
    const load = { tests: ['get', 'set'], clients: REDIS_CLIENTS, requests, payloadBytes: 2048 } as const;
    const figures = await runRedisBenchmark(host, { host, port: ports[path] }, load, signal, as[path]);
    return figures.length / figures.reduce((sum, { requestsPerSecond }) => sum + 1 / requestsPerSecond, 0);
  };
  return { measure, connections: REDIS_CLIENTS };
};

/** Two pairs of event loops in C, of which one has the library. */
const rttLoad: StartLoad = async ({ host, as }, undo, { roundMs, signal }) => {
  const hosts = { client: host, server: host };
  const peers = new Map<DirectPath, SteerPeers>();
  for (const path of paths) {
    peers.set(path, undo.use(await SteerPeers.start(hosts, [ports[path]], signal, 'anywhere', as[path])));
  }
  const job = { kind: 'rtt', amount: 64, ms: longEnough(roundMs, LEAST_ROUND_MS) } as const;
  const measure: Measure = async (path) => (await peers.get(path)?.run(job, ports[path], signal)) ?? Number.NaN;
  return { measure, connections: 1 };
};

async function prepareDirect(
  start: StartLoad,
  options: { readonly roundMs: number; readonly signal: AbortSignal },
): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const world = undo.use(await DirectWorld.create(options.signal));
  const { measure, connections } = await start(world, undo, options);
  const entrant =
    (path: DirectPath): Entrant =>
    () =>
      world.measured(path, connections, () => measure(path));
  const [ours, plain] = [entrant('direct'), entrant('plain')];
  // Once unmeasured, so that every page is there.
  for (const each of [ours, plain]) await each(options.signal);
  return contestOf(undo, ours, { plain });
}

export const directRows: readonly Row[] = [
  {
    id: 'direct.local.redis',
    what: 'redis on one host, GET and SET of 2 KiB, 30 clients, direct, next to plain loopback',
    unit: '1/s',
    better: 'higher',
    threshold: { plain: 5 },
    goal: { plain: 12 },
    prepare: (options) => prepareDirect(redisLoad, options),
  },
  {
    id: 'direct.local.rtt',
    what: 'round trip of 64 B on one host, median, direct, next to plain loopback',
    unit: 'us',
    better: 'lower',
    threshold: { plain: 0.3 },
    goal: { plain: 0.05 },
    prepare: (options) => prepareDirect(rttLoad, options),
  },
];
