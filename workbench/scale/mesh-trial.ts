// Many real daemons that find each other by etcd: all hosts talk with all, then a third of the
// daemons is killed and started again, and everything is carried again.

import { availableParallelism, freemem } from 'node:os';
import { MeshWorld } from './mesh-world.ts';
import { cpuNs, figuresOf } from './process-figures.ts';

/** All hosts talk with all others. `attempts`: until all was carried. */
interface Talk {
  readonly ms: number;
  readonly carried: number;
  readonly expected: number;
  readonly attempts: number;
}

export interface MeshReport {
  readonly hosts: number;
  /** From the first daemon's start until all have met. */
  readonly metMs: number;
  /** And until each kernel knows of the servers on all others. */
  readonly knownMs: number;
  readonly talks: readonly Talk[];
  readonly killed: number;
  /** From the kill until everything is carried again. */
  readonly againMs: number;
  readonly problems: readonly string[];
  readonly residentBytes: number;
  readonly residentBytesEach: number;
  readonly cpuSeconds: number;
  /** What the machine had for it. */
  readonly bound: string;
}

interface MeshOptions {
  readonly hosts: number;
  readonly signal: AbortSignal;
  readonly onStep?: (what: string) => void;
}

const GIB = 1024 ** 3;
const MOST_ATTEMPTS = 3;
const HOSTS_PER_CORE = 8;
const BYTES_PER_HOST = GIB / 2;

/** 64 hosts, or as many as this machine has processors and memory for. */
export function hostsHere(): number {
  const byCores = availableParallelism() * HOSTS_PER_CORE;
  return Math.max(2, Math.min(64, byCores, Math.floor(freemem() / BYTES_PER_HOST)));
}

export async function runMesh({ hosts, signal, onStep = () => {} }: MeshOptions): Promise<MeshReport> {
  const startMs = performance.now();
  onStep(`${hosts} hosts: starts etcd and a daemon in each`);
  await using world = await MeshWorld.create(hosts, signal);
  await world.met();
  const metMs = performance.now() - startMs;
  await world.listen();
  const knownMs = performance.now() - startMs;
  const problems: string[] = [];
  const talks: Talk[] = [];
  const talk = async (): Promise<void> => {
    const expected = hosts * (hosts - 1);
    // A daemon that got no processor for half a second has left connections to plain TCP.
    for (let attempt = 1; attempt <= MOST_ATTEMPTS; attempt++) {
      onStep('all hosts talk with all others');
      const beginMs = performance.now();
      const { carried, problems: wrong } = await world.talk();
      problems.push(...wrong);
      if (carried < expected && attempt < MOST_ATTEMPTS) continue;
      talks.push({ ms: performance.now() - beginMs, carried, expected, attempts: attempt });
      return;
    }
  };
  await talk();
  onStep('a third of the daemons is killed and started again');
  const killMs = performance.now();
  const killed = await world.restartThird();
  await world.met();
  await world.known();
  const againMs = performance.now() - killMs;
  await talk();
  const resident = world.pids.map((pid) => figuresOf(pid).residentBytes).reduce((sum, bytes) => sum + bytes, 0);
  const cpu = world.pids.map(cpuNs).reduce((sum, ns) => sum + ns, 0);
  const cores = availableParallelism();
  const busy = cpu / 1e6 / ((performance.now() - startMs) * cores);
  return {
    hosts,
    metMs,
    knownMs,
    talks,
    killed,
    againMs,
    problems,
    residentBytes: resident,
    residentBytesEach: resident / hosts,
    cpuSeconds: cpu / 1e9,
    bound: `${cores} processors, of which the last daemons had ${(100 * busy).toFixed(0)} %, and ${(freemem() / GIB).toFixed(1)} GiB left`,
  };
}
