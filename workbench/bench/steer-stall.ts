// How much memory is held when the receiver of a stream reads slowly or not at all: by the kernel's
// sockets and by who carries.

import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import type { ServerAddress, SteerPeers } from './steer-peers.ts';

/** Nothing moves any more. */
const REST_MS = 500;
const POLL_MS = 100;
/** The server reads 20. */
const SLOW_OFFER_MIB_PER_S = 40;
const LONGEST_MS = 600_000;
const MIB = 2 ** 20;

/**
 * What the kernel holds for the sockets of a host: received and not read, set aside, sent and not
 * acknowledged; see ss(8).
 */
async function socketBytes(host: Host): Promise<number> {
  const { code, stdout, stderr } = await host.run('ss', ['-tumnH']);
  if (code !== 0) throw new MillraceError('MILLRACE_ERR_FAILED', `run ss in host ${host.name}: ${stderr.trim()}`);
  const parts = [...stdout.matchAll(/skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),/g)].flatMap(([, ...some]) => some);
  return parts.reduce((sum, part) => sum + Number(part), 0);
}

/** Resident memory; of a page that several processes map, each has its share. */
function residentBytes(pid: number): number {
  return 1024 * Number(/^Pss:\s+(\d+) kB/m.exec(readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8'))?.[1]);
}

/** Who may hold bytes: the sockets of hosts, and the processes that carry. */
export interface Holders {
  readonly hosts: readonly Host[];
  readonly pids: readonly number[];
}

export async function heldBytes({ hosts, pids }: Holders): Promise<number> {
  const parts = [...(await Promise.all(hosts.map(socketBytes))), ...pids.map(residentBytes)];
  return parts.reduce((sum, part) => sum + part, 0);
}

export interface Stall extends Holders {
  readonly peers: SteerPeers;
  readonly offeredMiB: number;
  readonly stallMs: number;
  /** What is held at rest; looked at before each measurement unless given. */
  readonly restingBytes?: number;
  readonly signal: AbortSignal;
}

/** MiB, the most that was seen while the receiver stood still. */
export async function heldMiB(stall: Stall, at: number | ServerAddress): Promise<number> {
  const { peers, offeredMiB, stallMs, signal } = stall;
  const restingBytes = stall.restingBytes ?? (await heldBytes(stall));
  await peers.run({ kind: 'stall', amount: offeredMiB, ms: REST_MS }, at, signal);
  let mostBytes = 0;
  for (const endMs = performance.now() + stallMs; performance.now() < endMs; ) {
    mostBytes = Math.max(mostBytes, (await heldBytes(stall)) - restingBytes);
    await sleep(POLL_MS, undefined, { signal });
  }
  await peers.run({ kind: 'drop', amount: 0, ms: 0 }, at, signal);
  return mostBytes / MIB;
}

/**
 * Offers twice of what the receiver reads from now on, and tells at each look how many MiB are held
 * by then.
 */
export async function startSlow(
  holders: Holders,
  peers: SteerPeers,
  port: number,
  signal: AbortSignal,
): Promise<() => Promise<number>> {
  const beforeBytes = await heldBytes(holders);
  // It ends with the peers, and then has nothing to say.
  peers.run({ kind: 'slow', amount: SLOW_OFFER_MIB_PER_S, ms: LONGEST_MS }, port, signal).catch(() => {});
  return async () => ((await heldBytes(holders)) - beforeBytes) / MIB;
}
