// Rows steer.*: programs on one host whose connections are steered, next to the same programs on
// plain loopback TCP.

import { setTimeout as sleep } from 'node:timers/promises';
import type { Host } from '../../src/lab/index.ts';
import { type RedisServer, runRedisBenchmark, startRedis } from '../worlds/index.ts';
import { type Contest, type Entrant, longEnough, type Row } from './row.ts';
import { type PeerJob, type Placement, SteerPeers } from './steer-peers.ts';
import { type Holders, heldMiB, startSlow } from './steer-stall.ts';
import { ports, type SteerMethod, SteerWorld } from './steer-world.ts';

type Prepare = (world: SteerWorld, roundMs: number, signal: AbortSignal) => Promise<Measure & AsyncDisposable>;
interface Measure {
  readonly measure: (port: number) => Promise<number>;
}

/** Shorter ones would show how TCP starts, and not how it runs. */
const LEAST_ROUND_MS = 500;
const REDIS_CLIENTS = 30;
const REDIS_PER_MS = 20;

function peerTest(kind: PeerJob['kind'], amount: number, placement?: Placement): Prepare {
  return async ({ host }, roundMs, signal) => {
    const peers = await SteerPeers.start(
      { client: host, server: host },
      [ports.plain, ports.steered],
      signal,
      placement,
    );
    const job = { kind, amount, ms: longEnough(roundMs, LEAST_ROUND_MS) };
    return {
      measure: (port) => peers.run(job, port, signal),
      [Symbol.asyncDispose]: () => peers[Symbol.asyncDispose](),
    };
  };
}

/** Requests per second over GET and SET, as many of each. */
const redisTest: Prepare = async ({ host }, roundMs, signal) => {
  await using undo = new AsyncDisposableStack();
  const servers = new Map<number, RedisServer>();
  for (const port of Object.values(ports)) servers.set(port, undo.use(await startRedis(host, port)));
  const requests = longEnough(roundMs, LEAST_ROUND_MS) * REDIS_PER_MS;
  const load = { tests: ['get', 'set'], clients: REDIS_CLIENTS, requests, payloadBytes: 2048 } as const;
  const measure = async (port: number): Promise<number> => {
    const server = servers.get(port);
    if (server === undefined) return Number.NaN;
    const figures = await runRedisBenchmark(host, server, load, signal);
    return figures.length / figures.reduce((sum, { requestsPerSecond }) => sum + 1 / requestsPerSecond, 0);
  };
  const kept = undo.move();
  return { measure, [Symbol.asyncDispose]: () => kept.disposeAsync() };
};

const OFFERED_MIB = 1000;

function holdersOf(host: Host, daemonPid: number | null): Holders {
  return { hosts: [host], pids: daemonPid === null ? [] : [daemonPid] };
}

const stallTest: Prepare = async ({ host, daemonPid }, roundMs, signal) => {
  const peers = await SteerPeers.start({ client: host, server: host }, [ports.plain, ports.steered], signal);
  const stall = { ...holdersOf(host, daemonPid), peers, offeredMiB: OFFERED_MIB, stallMs: roundMs, signal };
  return {
    measure: (port) => heldMiB(stall, port),
    [Symbol.asyncDispose]: () => peers[Symbol.asyncDispose](),
  };
};

/** `who`: both, or one of them as a row without a rival. */
async function prepareSteer(
  method: SteerMethod,
  prepare: Prepare,
  who: 'both' | 'steered' | 'plain',
  { roundMs, signal }: { readonly roundMs: number; readonly signal: AbortSignal },
): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const world = undo.use(await SteerWorld.create(method, signal));
  const { measure } = undo.use(await prepare(world, roundMs, signal));
  const steered: Entrant = () => world.steered(measure);
  const plain: Entrant = () => world.plain(measure);
  const ours = who === 'plain' ? plain : steered;
  const against = who === 'both' ? { plain } : {};
  // Once unmeasured, so that everything is compiled and every page is there.
  for (const entrant of [ours, ...Object.values(against)]) await entrant(signal);
  const kept = undo.move();
  return { ours, against, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

const kinds = {
  redis: { what: 'redis, GET and SET of 2 KiB, 30 clients', unit: '1/s', better: 'higher', prepare: redisTest },
  rtt: {
    what: 'round trip of 64 B on one processor, median',
    unit: 'us',
    better: 'lower',
    prepare: peerTest('rtt', 64, 'together'),
  },
  rttApart: {
    what: 'round trip of 64 B between two processors that wake each other, median',
    unit: 'us',
    better: 'lower',
    prepare: peerTest('rtt', 64, 'apart'),
  },
  bulk: { what: 'one stream', unit: 'MiB/s', better: 'higher', prepare: peerTest('bulk', 1) },
  bulk3: { what: 'three streams', unit: 'MiB/s', better: 'higher', prepare: peerTest('bulk', 3) },
  connects: {
    what: 'connections made, used once and closed, 16 at a time',
    unit: '1/s',
    better: 'higher',
    prepare: peerTest('connects', 16),
  },
} as const satisfies Record<string, Pick<Row, 'what' | 'unit' | 'better'> & { readonly prepare: Prepare }>;

const paths = {
  connect: 'by way of a daemon on plain TCP',
  shortcut: 'past TCP where possible',
} as const satisfies Record<SteerMethod, string>;

function steerRow(
  id: string,
  method: SteerMethod,
  kind: keyof typeof kinds,
  limits: Pick<Row, 'threshold' | 'goal'> = {},
): Row {
  const { what, unit, better, prepare } = kinds[kind];
  return {
    id: `steer.${id}`,
    what: `${what}, ${paths[method]}, next to plain loopback`,
    unit,
    better,
    ...limits,
    prepare: (options) => prepareSteer(method, prepare, 'both', options),
  };
}

/** The rounds are points of one curve: what is held some time after the stream began. */
async function prepareSlow(
  name: SteerMethod | 'plain',
  { roundMs, signal }: { readonly roundMs: number; readonly signal: AbortSignal },
): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const stepMs = longEnough(roundMs, LEAST_ROUND_MS);
  const world = undo.use(await SteerWorld.create(name === 'plain' ? 'shortcut' : name, signal));
  const peers = undo.use(
    await SteerPeers.start({ client: world.host, server: world.host }, [ports.plain, ports.steered], signal),
  );
  let look: (() => Promise<number>) | undefined;
  const measure = async (port: number): Promise<number> => {
    look ??= await startSlow(holdersOf(world.host, world.daemonPid), peers, port, signal);
    await sleep(stepMs, undefined, { signal });
    return look();
  };
  // Whether it is steered is decided when it begins.
  const first: Entrant = () => (name === 'plain' ? world.plain(measure) : world.steered(measure));
  const ours: Entrant = () => (look === undefined ? first(signal) : measure(0));
  const kept = undo.move();
  return { ours, against: {}, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

function slowRow(name: SteerMethod | 'plain'): Row {
  return {
    id: `steer.${name}.slow`,
    what: `held in kernel and daemon as time goes by, the receiver reads half of what is sent, ${pathOf(name)}`,
    unit: 'MiB',
    better: 'lower',
    prepare: (options) => prepareSlow(name, options),
  };
}

function pathOf(name: SteerMethod | 'plain'): string {
  return name === 'plain' ? 'plain loopback' : paths[name];
}

function stalledRow(name: SteerMethod | 'plain'): Row {
  const isPlain = name === 'plain';
  return {
    id: `steer.${name}.stalled`,
    what: `held in kernel and daemon when the receiver stops, ${OFFERED_MIB} MiB offered, ${pathOf(name)}`,
    unit: 'MiB',
    better: 'lower',
    ...(!isPlain && { threshold: 32, goal: 8 }),
    prepare: (options) => prepareSteer(isPlain ? 'shortcut' : name, stallTest, isPlain ? 'plain' : 'steered', options),
  };
}

function plainLimits(threshold: number, goal: number): Pick<Row, 'threshold' | 'goal'> {
  return { threshold: { plain: threshold }, goal: { plain: goal } };
}

export const steerRows: readonly Row[] = [
  steerRow('shortcut.redis', 'shortcut', 'redis', plainLimits(1.2, 1.6)),
  steerRow('shortcut.rtt', 'shortcut', 'rtt', plainLimits(0.75, 0.5)),
  steerRow('shortcut.rtt.apart', 'shortcut', 'rttApart'),
  steerRow('shortcut.bulk', 'shortcut', 'bulk', plainLimits(1.0, 1.5)),
  steerRow('shortcut.bulk.3', 'shortcut', 'bulk3'),
  steerRow('shortcut.connects', 'shortcut', 'connects'),
  stalledRow('shortcut'),
  slowRow('shortcut'),
  steerRow('connect.redis', 'connect', 'redis'),
  steerRow('connect.rtt', 'connect', 'rtt'),
  steerRow('connect.rtt.apart', 'connect', 'rttApart'),
  steerRow('connect.bulk.1', 'connect', 'bulk'),
  steerRow('connect.bulk.3', 'connect', 'bulk3'),
  steerRow('connect.connects', 'connect', 'connects'),
  stalledRow('connect'),
  slowRow('connect'),
  stalledRow('plain'),
  slowRow('plain'),
];
