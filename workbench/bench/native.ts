// Rows native.*: the cost of a call into the addon, and TypeScript loops over system calls next to
// the same loops in C.

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { CLoop } from './c-loop.ts';
import { type Contest, contestOf, type Row } from './row.ts';

/** One loop, for native-loop.ts (a worker) and workbench/bench/c/loop.c. */
export interface LoopJob {
  readonly kind: 'crossing' | 'arguments' | 'epoll' | 'pump';
  /** Ready descriptors (epoll) or bytes (pump). */
  readonly size: number;
  readonly iterations: number;
}

/**
 * `perMs`: about how many iterations take 1 ms. Both entrants run the same number of iterations.
 */
type Loop = Pick<LoopJob, 'kind' | 'size'> & { readonly perMs: number };

function loopRow(id: string, what: string, { perMs, ...job }: Loop, limits: Pick<Row, 'threshold' | 'goal'>): Row {
  return {
    id,
    what,
    unit: 'ns',
    better: 'lower',
    ...limits,
    prepare: ({ roundMs, signal }) => prepareLoop({ ...job, iterations: roundMs * perMs }, signal),
  };
}

async function prepareLoop(job: LoopJob, signal: AbortSignal): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const worker = new Worker(new URL('native-loop.ts', import.meta.url));
  undo.defer(async () => void (await worker.terminate()));
  const ours = async (): Promise<number> => {
    worker.postMessage(job);
    const [ns] = await once(worker, 'message', { signal });
    return Number(ns);
  };
  const hasRival = job.kind === 'epoll' || job.kind === 'pump';
  const c = hasRival ? undo.use(await CLoop.start(signal)) : undefined;
  // One run without measuring, so that V8 has compiled the loop.
  await ours();
  return contestOf(undo, ours, c === undefined ? {} : { native: () => c.run(job) });
}

function nativeLimits(threshold: number, goal: number): Pick<Row, 'threshold' | 'goal'> {
  return { threshold: { native: threshold }, goal: { native: goal } };
}

const loops = {
  bare: { kind: 'crossing', size: 0, perMs: 30_000 },
  five: { kind: 'arguments', size: 0, perMs: 8_000 },
  epoll1: { kind: 'epoll', size: 1, perMs: 700 },
  epoll64: { kind: 'epoll', size: 64, perMs: 200 },
  pump64: { kind: 'pump', size: 64, perMs: 130 },
  pump128k: { kind: 'pump', size: 131_072, perMs: 45 },
} as const satisfies Record<string, Loop>;

export const nativeRows: readonly Row[] = [
  loopRow('native.crossing', 'a call into the addon that does nothing', loops.bare, { threshold: 50, goal: 15 }),
  loopRow('native.crossing.5', 'a call with five checked arguments', loops.five, { threshold: 200, goal: 80 }),
  loopRow('native.epoll.1', 'an epoll round, 1 descriptor ready', loops.epoll1, nativeLimits(1.3, 1.1)),
  loopRow('native.epoll.64', 'an epoll round, 64 descriptors ready', loops.epoll64, nativeLimits(1.3, 1.1)),
  loopRow('native.pump.64', 'receive and send of 64 B on TCP', loops.pump64, nativeLimits(1.15, 1.05)),
  loopRow('native.pump.128k', 'receive and send of 128 KiB on TCP', loops.pump128k, nativeLimits(1.1, 1.0)),
];
