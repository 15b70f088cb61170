// Rows vortex.local*: one worker fills a stream of doubles, one sums it, next to the same loops
// over ordinary arrays.

import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { MillraceError } from '../../src/errors.ts';
import { createLocalStream, type StreamOptions } from '../../src/vortex/index.ts';
import { reserveHugePages } from './huge-pages.ts';
import { type Contest, contestOf, type Row } from './row.ts';
import type { LoopAnswer, LoopOrder } from './vortex-local-loop.ts';

const MIB = 2 ** 20;
const HUGE_PAGE_BYTES = 2 * MIB;
/** About how many bytes the loops process in 1 ms, for the size of a round's stream. */
const BYTES_PER_MS = 4e6;
/** Beyond 2^31 elements V8 indexes slowly, in any array. */
const MAX_STREAM_BYTES = 2 ** 33;

/**
 * The pool of the row: blocks large enough that page faults do not count, few enough to stay in the
 * cache.
 */
const pool: StreamOptions & { readonly blockBytes: number; readonly poolBlocks: number } = {
  blockBytes: 8 * MIB,
  poolBlocks: 8,
};

/** Two, because workers close a stream only when they open the next one. */
const POOLS_AT_ONCE = 2;

/** The figures of one run over a stream. */
interface LocalFigures {
  readonly bytesPerS: number;
  /** Of both ends together. */
  readonly faultsPerGb: number;
  readonly cpuSecondsPerGb: number;
}

class Workers implements AsyncDisposable {
  readonly #workers: readonly Worker[];

  constructor() {
    const file = new URL('vortex-local-loop.ts', import.meta.url);
    this.#workers = [new Worker(file), new Worker(file)];
  }

  /**
   * Measures from the first touch to the end, without opening the windows; the rival's arrays are
   * not allocated in that time either.
   */
  async stream(sizeBytes: number, options: StreamOptions, signal: AbortSignal): Promise<LocalFigures> {
    using stream = createLocalStream(sizeBytes, options);
    const { producer, consumer } = stream;
    await this.#ask(
      [producer, consumer].map((handle) => ({ kind: 'open', handle })),
      signal,
    );
    return await this.#measure(sizeBytes, [{ kind: 'stream' }, { kind: 'stream' }], signal);
  }

  async array(sizeBytes: number, arrayBytes: number, signal: AbortSignal): Promise<LocalFigures> {
    const orderOf = (role: 'producer' | 'consumer'): LoopOrder => ({ kind: 'array', role, arrayBytes, sizeBytes });
    return this.#measure(sizeBytes, [orderOf('producer'), orderOf('consumer')], signal);
  }

  async #measure(sizeBytes: number, orders: readonly LoopOrder[], signal: AbortSignal): Promise<LocalFigures> {
    const startMs = performance.now();
    const startCpu = process.cpuUsage();
    const answers = await this.#ask(orders, signal);
    const cpu = process.cpuUsage(startCpu);
    const gigabytes = sizeBytes / 1e9;
    return {
      bytesPerS: (sizeBytes * 1000) / (performance.now() - startMs),
      faultsPerGb: answers.reduce((total, { faults }) => total + faults, 0) / gigabytes,
      cpuSecondsPerGb: (cpu.user + cpu.system) / 1e6 / gigabytes,
    };
  }

  async #ask(orders: readonly LoopOrder[], signal: AbortSignal): Promise<readonly LoopAnswer[]> {
    return Promise.all(orders.map((order, index) => ask(this.#workers[index], order, signal)));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.terminate()));
  }
}

async function ask(worker: Worker, order: LoopOrder, signal: AbortSignal): Promise<LoopAnswer> {
  const ended = new AbortController();
  const either = AbortSignal.any([signal, ended.signal]);
  const onExit = (): void =>
    ended.abort(new MillraceError('MILLRACE_ERR_FAILED', 'measure a stream: a worker has ended'));
  worker.once('exit', onExit);
  const answer = once(worker, 'message', { signal: either });
  worker.postMessage(order);
  const [value] = await answer;
  worker.off('exit', onExit);
  return value;
}

function sizeOf(roundMs: number, blockBytes: number): number {
  const bytes = Math.min(roundMs * BYTES_PER_MS, MAX_STREAM_BYTES);
  return Math.max(16, Math.ceil(bytes / blockBytes)) * blockBytes;
}

async function prepareLocal(roundMs: number, signal: AbortSignal): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const poolBytes = pool.blockBytes * pool.poolBlocks;
  undo.use(reserveHugePages((POOLS_AT_ONCE * poolBytes) / HUGE_PAGE_BYTES));
  const workers = undo.use(new Workers());
  const sizeBytes = Math.ceil(sizeOf(roundMs, pool.blockBytes) / poolBytes) * poolBytes;
  const ours = async (): Promise<number> => (await workers.stream(sizeBytes, pool, signal)).bytesPerS / 1e9;
  const array = async (): Promise<number> => (await workers.array(sizeBytes, poolBytes, signal)).bytesPerS / 1e9;
  // One run without measuring, so that V8 has compiled the loops and the arrays' pages are mapped.
  await ours();
  await array();
  return contestOf(undo, ours, { array });
}

/** One figure for one block size. */
async function prepareSweep(
  blockBytes: number,
  figure: (figures: LocalFigures) => number,
  options: { readonly roundMs: number; readonly signal: AbortSignal },
): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const { signal } = options;
  const sweepPool = { blockBytes, poolBlocks: Math.max(4, Math.min(64, (64 * MIB) / blockBytes)) };
  undo.use(reserveHugePages(Math.ceil((POOLS_AT_ONCE * blockBytes * sweepPool.poolBlocks) / HUGE_PAGE_BYTES)));
  const workers = undo.use(new Workers());
  const sizeBytes = sizeOf(options.roundMs, blockBytes);
  const ours = async (): Promise<number> => figure(await workers.stream(sizeBytes, sweepPool, signal));
  await ours();
  return contestOf(undo, ours);
}

const sweepSizes: readonly (readonly [name: string, blockBytes: number])[] = [
  ['64KiB', 64 * 1024],
  ['256KiB', 256 * 1024],
  ['1MiB', MIB],
  ['2MiB', 2 * MIB],
  ['4MiB', 4 * MIB],
  ['8MiB', 8 * MIB],
  ['16MiB', 16 * MIB],
  ['64MiB', 64 * MIB],
];

function sweepRows(name: string, blockBytes: number): readonly Row[] {
  return [
    {
      id: `vortex.local@${name}`,
      what: `vortex.local with blocks of ${name}`,
      unit: 'GB/s',
      better: 'higher',
      prepare: (options) => prepareSweep(blockBytes, ({ bytesPerS }) => bytesPerS / 1e9, options),
    },
    {
      id: `vortex.local.faults@${name}`,
      what: `page faults of both ends in a GB, blocks of ${name}`,
      unit: 'faults/GB',
      better: 'lower',
      prepare: (options) => prepareSweep(blockBytes, ({ faultsPerGb }) => faultsPerGb, options),
    },
    {
      id: `vortex.local.cpu@${name}`,
      what: `processor time of both ends for a GB, loops included, blocks of ${name}`,
      unit: 's/GB',
      better: 'lower',
      prepare: (options) => prepareSweep(blockBytes, ({ cpuSecondsPerGb }) => cpuSecondsPerGb, options),
    },
  ];
}

export const vortexLocalRows: readonly Row[] = [
  {
    id: 'vortex.local',
    what: 'doubles filled by one worker and summed by another, next to both loops over ordinary arrays',
    unit: 'GB/s',
    better: 'higher',
    threshold: { array: 0.5 },
    goal: { array: 0.95 },
    prepare: ({ roundMs, signal }) => prepareLocal(roundMs, signal),
  },
  ...sweepSizes.flatMap(([name, blockBytes]) => sweepRows(name, blockBytes)),
];
