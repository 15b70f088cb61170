// How much memory is held when the receiver of a stream reads slowly or not at all: by the kernel's sockets and by the relay.

import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { MillraceError } from '../errors.ts';
import type { Host } from '../lab/index.ts';
import type { SteerPeers } from './steer-peers.ts';

/** Nothing moves any more. */
const REST_MS = 500;
const LOOK_MS = 100;
/** The server reads 20. */
const SLOW_OFFER_MIB_PER_S = 40;
const LONGEST_MS = 600_000;
const MIB = 2 ** 20;

/** What the kernel holds for the sockets of a host: received and not read, set aside, sent and not acknowledged; see ss(8). */
async function socketBytes(host: Host): Promise<number> {
  const { code, stdout, stderr } = await host.run('ss', ['-tmnH']);
  if (code !== 0) throw new MillraceError('MILLRACE_ERR_FAILED', `run ss in host ${host.name}: ${stderr.trim()}`);
  const parts = [...stdout.matchAll(/skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),/g)].flatMap(([, ...some]) => some);
  return parts.reduce((sum, part) => sum + Number(part), 0);
}

function residentBytes(pid: number): number {
  return 1024 * Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

async function heldBytes({ host, relayPid }: Holders): Promise<number> {
  return (await socketBytes(host)) + (relayPid === null ? 0 : residentBytes(relayPid));
}

/** Who may hold bytes. */
export interface Holders {
  readonly host: Host;
  readonly relayPid: number | null;
}

export interface Stall extends Holders {
  readonly peers: SteerPeers;
  readonly offeredMiB: number;
  readonly stallMs: number;
  readonly signal: AbortSignal;
}

/** MiB, the most that was seen while the receiver stood still. */
export async function heldMiB(stall: Stall, port: number): Promise<number> {
  const { peers, offeredMiB, stallMs, signal } = stall;
  const beforeBytes = await heldBytes(stall);
  await peers.run({ kind: 'stall', amount: offeredMiB, ms: REST_MS }, port, signal);
  let mostBytes = 0;
  for (const endMs = performance.now() + stallMs; performance.now() < endMs; ) {
    mostBytes = Math.max(mostBytes, (await heldBytes(stall)) - beforeBytes);
    await sleep(LOOK_MS, undefined, { signal });
  }
  await peers.run({ kind: 'drop', amount: 0, ms: 0 }, port, signal);
  return mostBytes / MIB;
}

/** Offers twice of what the receiver reads from now on, and tells at each look how many MiB are held by then. */
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
