// Figures of hosts and processes as the kernel tells them: bytes in sockets, resident memory,
// processor time.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Host } from '../../../src/lab/index.ts';
import { succeed } from '../../../workbench/worlds/succeed.ts';

/** USER_HZ is 100 wherever Node runs. */
const tickMs = 10;

/**
 * What the kernel holds for the sockets of a host: received and not read, sent and not
 * acknowledged, and set aside; see ss(8).
 */
export async function socketBytes(host: Host): Promise<number> {
  const table = await succeed(host, 'ss', ['-tmnH']);
  const sums = [...table.matchAll(/skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),/g)].map((match) =>
    match.slice(1).reduce((sum, part) => sum + Number(part), 0),
  );
  return sums.reduce((sum, part) => sum + part, 0);
}

export function residentBytes(pid: number): number {
  return 1024 * Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

/** By SIGSTOP. */
export function isStopped(pid: number): boolean {
  return /^State:\s+T/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
}

/** User and system time of all threads; fields 14 and 15 of proc_pid_stat(5). */
export function cpuMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return tickMs * (Number(fields[11]) + Number(fields[12]));
}

/** Until what the sockets hold grows no more. */
export async function full(hosts: readonly Host[]): Promise<void> {
  const lookMs = 150;
  for (let earlier = -1, held = 0, endMs = performance.now() + 20_000; held !== earlier || held === 0; ) {
    assert.ok(performance.now() < endMs, 'it never became full');
    await sleep(lookMs);
    earlier = held;
    held = (await Promise.all(hosts.map(socketBytes))).reduce((sum, part) => sum + part, 0);
  }
}
