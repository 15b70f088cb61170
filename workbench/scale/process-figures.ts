// What a process costs, as the kernel tells: memory, descriptors, mappings, processor time.

import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

export interface ProcessFigures {
  readonly residentBytes: number;
  readonly descriptors: number;
  readonly mappings: number;
}

export function figuresOf(pid: number): ProcessFigures {
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  return {
    residentBytes: 1024 * Number(/VmRSS:\s+(\d+) kB/.exec(status)?.[1]),
    descriptors: readdirSync(`/proc/${pid}/fd`).length,
    mappings: readFileSync(`/proc/${pid}/maps`, 'utf8').trimEnd().split('\n').length,
  };
}

/** Of all threads that it has now: the first field of schedstat. */
export function cpuNs(pid: number): number {
  const threads = readdirSync(`/proc/${pid}/task`);
  const times = threads.map((thread) => readFileSync(`/proc/${pid}/task/${thread}/schedstat`, 'utf8').split(' ')[0]);
  return times.reduce((sum, time) => sum + Number(time), 0);
}

/** Of its first thread, which is the main thread of a daemon. */
export function mainCpuNs(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'utf8').split(' ')[0]);
}

/** The share of a core that it uses for so long. */
export async function coresOf(pid: number, ms: number, signal: AbortSignal): Promise<number> {
  const [beforeNs, startMs] = [cpuNs(pid), performance.now()];
  await sleep(ms, undefined, { signal });
  return (cpuNs(pid) - beforeNs) / 1e6 / (performance.now() - startMs);
}
