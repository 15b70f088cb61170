// The loads of proxy.*, the same on each path: event loops in C, and the processor time that they
// take.

import { cpuSeconds } from './cpu-seconds.ts';
import { type ProxyPath, type ProxyWorld, serverPorts } from './proxy-world.ts';
import { longEnough } from './row.ts';
import { type PeerJob, SteerPeers } from './steer-peers.ts';

interface Load extends AsyncDisposable {
  /** Opens a connection on that path, and uses it once. */
  connect(path: ProxyPath): Promise<unknown>;
  measure(path: ProxyPath): Promise<number>;
}

export interface LoadOptions {
  readonly roundMs: number;
  readonly signal: AbortSignal;
}

export type StartLoad = (world: ProxyWorld, options: LoadOptions) => Promise<Load>;

/** Shorter rounds would measure the start of TCP streams. */
const LEAST_ROUND_MS = 500;
const MIB = 2 ** 20;
const GIGABYTE = 1e9;

/** One round trip of one byte. */
export const touchJob: PeerJob = { kind: 'rtt', amount: 1, ms: 1 };

export function startPeers(world: ProxyWorld, signal: AbortSignal): Promise<SteerPeers> {
  return SteerPeers.start(world, Object.values(serverPorts), signal);
}

export function peerLoad(kind: PeerJob['kind'], amount: number): StartLoad {
  return async (world, { roundMs, signal }) => {
    const peers = await startPeers(world, signal);
    const job = { kind, amount, ms: longEnough(roundMs, LEAST_ROUND_MS) };
    return {
      connect: (path) => peers.run(touchJob, world.addressOf(path), signal),
      measure: (path) => peers.run(job, world.addressOf(path), signal),
      [Symbol.asyncDispose]: () => peers[Symbol.asyncDispose](),
    };
  };
}

/**
 * The processor time of all processes of both hosts, daemons or haproxy included, for 1 GB of one
 * stream, in s.
 */
export const cpuLoad: StartLoad = async (world, options) => {
  const load = await peerLoad('volume', 1)(world, options);
  const measure = async (path: ProxyPath): Promise<number> => {
    const before = cpuSeconds(world);
    const mib = await load.measure(path);
    return ((cpuSeconds(world) - before) * GIGABYTE) / (mib * MIB);
  };
  return { ...load, measure };
};
