// redis in proxy.*: requests per second on each path, and how they change with the number of
// clients.

import { type RedisServer, runRedisBenchmark, startRedis } from '../worlds/index.ts';
import type { StartLoad } from './proxy-loads.ts';
import { type ProxyPath, type ProxyWorld, serverPorts } from './proxy-world.ts';

/** The fewest requests of a client. */
const LEAST_PER_CLIENT = 10;
const TRIAL_REQUESTS = 1000;
const paths: readonly ProxyPath[] = ['carried', 'plain', 'haproxy'];

/** Requests per second, half of them GET and half SET. */
export function redisLoad(clients: number): StartLoad {
  return async (world, { roundMs, signal }) => {
    const redis = await startRedisServers(world);
    let requests = 0;
    const measure = async (path: ProxyPath): Promise<number> => {
      requests ||= await requestsFor(world, clients, roundMs, signal);
      return requestsPerSecond(world, path, { clients, requests }, signal);
    };
    return {
      connect: (path) => touchRedis(world, path, signal),
      measure,
      [Symbol.asyncDispose]: () => redis.disposeAsync(),
    };
  };
}

/**
 * How the ratio to plain TCP changes with the number of clients: the ratio with `many` over the
 * ratio with `few`. The four measurements of a round are run forwards and backwards in turns.
 */
export function scaleLoad(few: number, many: number): StartLoad {
  return async (world, { roundMs, signal }) => {
    const redis = await startRedisServers(world);
    let requests = 0;
    const parts: readonly { path: ProxyPath; clients: number; power: 1 | -1 }[] = [
      { path: 'carried', clients: many, power: 1 },
      { path: 'plain', clients: many, power: -1 },
      { path: 'carried', clients: few, power: -1 },
      { path: 'plain', clients: few, power: 1 },
    ];
    let isForward = false;
    const ratio = async (): Promise<number> => {
      isForward = !isForward;
      requests ||= await requestsFor(world, many, roundMs, signal);
      let figure = 1;
      for (const { path, clients, power } of isForward ? parts : parts.toReversed()) {
        const measure = () => requestsPerSecond(world, path, { clients, requests }, signal);
        figure *= (await world.measured(path, measure)) ** power;
      }
      return figure;
    };
    return {
      connect: (path) => touchRedis(world, path, signal),
      measure: ratio,
      [Symbol.asyncDispose]: () => redis.disposeAsync(),
    };
  };
}

/**
 * The number of requests, the same for all paths, with which a round takes about `roundMs` per
 * path; a trial measures it.
 */
async function requestsFor(world: ProxyWorld, clients: number, roundMs: number, signal: AbortSignal): Promise<number> {
  const least = clients * LEAST_PER_CLIENT;
  const trial = { clients, requests: Math.max(TRIAL_REQUESTS, least) };
  let msPerRequest = 0;
  for (const path of paths) msPerRequest += 1000 / (await requestsPerSecond(world, path, trial, signal));
  return Math.ceil(Math.max(least, (roundMs * paths.length) / msPerRequest));
}

/** A redis has one port, so each path has a server of its own. */
async function startRedisServers({ server }: ProxyWorld): Promise<AsyncDisposableStack> {
  await using undo = new AsyncDisposableStack();
  for (const port of Object.values(serverPorts)) undo.use<RedisServer>(await startRedis(server, port));
  return undo.move();
}

function touchRedis(world: ProxyWorld, path: ProxyPath, signal: AbortSignal): Promise<unknown> {
  const load = { tests: ['ping_mbulk'], clients: 1, requests: 1, payloadBytes: 3 } as const;
  return runRedisBenchmark(world.client, world.endpointOf(path), load, signal);
}

async function requestsPerSecond(
  world: ProxyWorld,
  path: ProxyPath,
  size: { readonly clients: number; readonly requests: number },
  signal: AbortSignal,
): Promise<number> {
  const load = { tests: ['get', 'set'], ...size, payloadBytes: 2048 } as const;
  const figures = await runRedisBenchmark(world.client, world.endpointOf(path), load, signal);
  return figures.length / figures.reduce((sum, each) => sum + 1 / each.requestsPerSecond, 0);
}
