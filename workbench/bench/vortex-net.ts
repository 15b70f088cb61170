// Rows vortex.tcp, vortex.pool, vortex.copy and vortex.register: streams between two lab hosts,
// next to iperf3 or raw WRITEs.

import { fileURLToPath } from 'node:url';
import { MillraceError, UnsupportedError } from '../../src/errors.ts';
import { findProgram, Lab } from '../../src/lab/index.ts';
import type { Strategy } from '../../src/vortex/net/index.ts';
import { reserveHugePages } from './huge-pages.ts';
import { type Contest, contestOf, longEnough, type Row } from './row.ts';
import { LineProgram } from './steer-program.ts';
import type { StreamJob, StreamReport } from './vortex-net-program.ts';

const MIB = 2 ** 20;
const HUGE_PAGE_BYTES = 2 * MIB;
/** Shorter rounds would measure the start of streams: V8 compiles the loops of each engine anew. */
const LEAST_ROUND_MS = 600;
/** About how many bytes a stream moves in 1 ms, for the size of a round's stream. */
const TCP_BYTES_PER_MS = 2e6;
const SHM_BYTES_PER_MS = 12e6;
const ROCE_BYTES_PER_MS = 0.4e6;
/**
 * The memory of the raw WRITEs at each end: many times a processor's cache, and less on the slower
 * wire.
 */
const SHM_REGION_BYTES = 256 * MIB;
const ROCE_REGION_BYTES = 64 * MIB;
const IPERF_PORT = '5201';

const program = fileURLToPath(new URL('vortex-net-program.ts', import.meta.url));

type Geometry = Pick<StreamJob, 'blockBytes' | 'poolBlocks'>;

/**
 * The pools fit into the processor's cache, so that bytes of one end need not be fetched from
 * memory by the other.
 */
const tcpPool: Geometry = { blockBytes: 2 * MIB, poolBlocks: 8 };
const rdmaPool: Geometry = { blockBytes: 4 * MIB, poolBlocks: 4 };

interface PrepareOptions {
  readonly roundMs: number;
  readonly signal: AbortSignal;
}

interface StreamFigures {
  readonly gbPerS: number;
  /** Of both programs together. */
  readonly cpuSecondsPerGb: number;
  readonly faultsPerGb: number;
}

/** Two hosts with a program each. The first one sends, or writes. */
class StreamPair implements AsyncDisposable {
  readonly lab: Lab;
  readonly #undo: AsyncDisposableStack;
  readonly #left: LineProgram;
  readonly #right: LineProgram;
  readonly #signal: AbortSignal;

  static async start(signal: AbortSignal): Promise<StreamPair> {
    await using undo = new AsyncDisposableStack();
    const lab = undo.use(await Lab.create({ hosts: ['a', 'b'], signal }));
    const start = (name: string): LineProgram => undo.use(new LineProgram(lab.host(name), process.execPath, [program]));
    return new StreamPair(lab, start('a'), start('b'), signal, undo.move());
  }

  private constructor(
    lab: Lab,
    left: LineProgram,
    right: LineProgram,
    signal: AbortSignal,
    undo: AsyncDisposableStack,
  ) {
    this.lab = lab;
    this.#left = left;
    this.#right = right;
    this.#signal = signal;
    this.#undo = undo;
  }

  async stream(job: Omit<StreamJob, 'kind' | 'host' | 'localAddress' | 'regionBytes'>): Promise<StreamFigures> {
    const common = { ...job, host: this.lab.host('a').ipv4, localAddress: '', regionBytes: 0 };
    const [sent, received] = await this.#both(this.#left, { ...common, kind: 'send' }, this.#right, {
      ...common,
      kind: 'receive',
    });
    const gigabytes = job.sizeBytes / 1e9;
    return {
      gbPerS: gigabytes / Math.max(sent.seconds, received.seconds),
      cpuSecondsPerGb: (sent.cpuSeconds + received.cpuSeconds) / gigabytes,
      faultsPerGb: (sent.faults + received.faults) / gigabytes,
    };
  }

  /** In GB/s. */
  async raw(device: string, sizeBytes: number, regionBytes: number): Promise<number> {
    const [from, to] = [this.lab.host('a').ipv4, this.lab.host('b').ipv4];
    const common = { ...rdmaPool, device, sizeBytes, regionBytes, touch: 'word', host: to } as const;
    const [, written] = await this.#both(this.#right, { ...common, kind: 'offer', localAddress: to }, this.#left, {
      ...common,
      kind: 'write',
      localAddress: from,
    });
    return sizeBytes / 1e9 / written.seconds;
  }

  async #both(
    listener: LineProgram,
    listening: StreamJob,
    dialer: LineProgram,
    dialing: StreamJob,
  ): Promise<readonly [StreamReport, StreamReport]> {
    listener.write(JSON.stringify(listening));
    const port = JSON.parse(await listener.line(this.#signal)) as number;
    dialer.write(JSON.stringify({ ...dialing, port }));
    const lines = await Promise.all([listener.line(this.#signal), dialer.line(this.#signal)]);
    const [first, second] = lines.map((line) => JSON.parse(line) as StreamReport);
    if (first === undefined || second === undefined)
      throw new MillraceError('MILLRACE_ERR_FAILED', 'measure a stream: a program sent no report');
    return [first, second];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#undo.disposeAsync();
  }
}

function wholeBlocks(bytes: number, { blockBytes }: Geometry): number {
  return Math.max(16, Math.ceil(bytes / blockBytes)) * blockBytes;
}

function bytesFor(roundMs: number, bytesPerMs: number, blocks: Geometry): number {
  return wholeBlocks(longEnough(roundMs, LEAST_ROUND_MS) * bytesPerMs, blocks);
}

/** GB/s of iperf3 in the direction of the stream: its server is in the receiver's host. */
async function runIperf({ lab }: StreamPair, sizeBytes: number, signal: AbortSignal): Promise<number> {
  const [sender, receiver] = [lab.host('a'), lab.host('b')];
  const server = new LineProgram(receiver, 'iperf3', ['-s', '-1', '-p', IPERF_PORT, '--forceflush']);
  await using undo = new AsyncDisposableStack();
  undo.use(server);
  while (!/listening/.test(await server.line(signal)));
  const args = ['-c', receiver.ipv4, '-p', IPERF_PORT, '-n', String(sizeBytes), '-J'];
  const { code, stdout, stderr } = await sender.run('iperf3', args, { signal });
  if (code !== 0) throw new MillraceError('MILLRACE_ERR_FAILED', `iperf3 ended with ${code}: ${stderr}`);
  const report = JSON.parse(stdout) as { end: { sum_received: { bits_per_second: number } } };
  return report.end.sum_received.bits_per_second / 8e9;
}

async function prepareTcp({ roundMs, signal }: PrepareOptions): Promise<Contest> {
  if (findProgram('iperf3') === null) throw new UnsupportedError('vortex.tcp: install the Debian package iperf3');
  await using undo = new AsyncDisposableStack();
  undo.use(reservePools(tcpPool));
  const pair = undo.use(await StreamPair.start(signal));
  const sizeBytes = bytesFor(roundMs, TCP_BYTES_PER_MS, tcpPool);
  const job = { sizeBytes, ...tcpPool, touch: 'fill' } as const;
  const ours = async (): Promise<number> => (await pair.stream(job)).gbPerS;
  const iperf3 = (): Promise<number> => runIperf(pair, sizeBytes, signal);
  await ours();
  return contestOf(undo, ours, { iperf3 });
}

async function prepareRdma(
  device: 'soft-shm' | 'soft-roce',
  strategy: Strategy,
  { roundMs, signal }: PrepareOptions,
): Promise<Contest> {
  const isShm = device === 'soft-shm';
  const regionBytes = isShm ? SHM_REGION_BYTES : ROCE_REGION_BYTES;
  await using undo = new AsyncDisposableStack();
  undo.use(reservePools(rdmaPool, 2 * regionBytes));
  const pair = undo.use(await StreamPair.start(signal));
  const sizeBytes = bytesFor(roundMs, isShm ? SHM_BYTES_PER_MS : ROCE_BYTES_PER_MS, rdmaPool);
  const job = { sizeBytes, ...rdmaPool, touch: 'word', device, strategy } as const;
  const ours = async (): Promise<number> => (await pair.stream(job)).gbPerS;
  const raw = (): Promise<number> => pair.raw(device, sizeBytes, regionBytes);
  await ours();
  return contestOf(undo, ours, { raw });
}

/** Huge pages for the pools of both ends. */
function reservePools({ blockBytes, poolBlocks }: Geometry, moreBytes = 0): Disposable {
  return reserveHugePages(Math.ceil((2 * blockBytes * poolBlocks + moreBytes) / HUGE_PAGE_BYTES));
}

/** One figure for one block size on one wire: rate, page faults or processor time. */
async function prepareSweep(
  blockBytes: number,
  device: string | undefined,
  figure: (figures: StreamFigures) => number,
  { roundMs, signal }: PrepareOptions,
): Promise<Contest> {
  const blocks = { blockBytes, poolBlocks: Math.max(4, Math.min(64, (24 * MIB) / blockBytes)) };
  await using undo = new AsyncDisposableStack();
  undo.use(reservePools(blocks));
  const pair = undo.use(await StreamPair.start(signal));
  const bytesPerMs = device === undefined ? TCP_BYTES_PER_MS : SHM_BYTES_PER_MS;
  const job = { sizeBytes: bytesFor(roundMs, bytesPerMs, blocks), ...blocks, touch: 'word', device } as const;
  const ours = async (): Promise<number> => figure(await pair.stream(job));
  await ours();
  return contestOf(undo, ours);
}

const sweepSizes: readonly (readonly [name: string, blockBytes: number])[] = [
  ['64KiB', 64 * 1024],
  ['256KiB', 256 * 1024],
  ['1MiB', MIB],
  ['4MiB', 4 * MIB],
  ['16MiB', 16 * MIB],
  ['64MiB', 64 * MIB],
];

const sweepWires = [
  ['tcp', undefined],
  ['pool', 'soft-shm'],
] as const;

function sweepRows(
  [size, blockBytes]: (typeof sweepSizes)[number],
  [wire, device]: (typeof sweepWires)[number],
): Row[] {
  const row = (id: string, what: string, unit: string, figure: (figures: StreamFigures) => number): Row => ({
    id,
    what: `${what}, blocks of ${size}`,
    unit,
    better: unit === 'GB/s' ? 'higher' : 'lower',
    prepare: (options) => prepareSweep(blockBytes, device, figure, options),
  });
  return [
    row(`vortex.${wire}@${size}`, `a stream by ${wire}`, 'GB/s', ({ gbPerS }) => gbPerS),
    row(
      `vortex.${wire}.cpu@${size}`,
      `processor time of both ends for a GB by ${wire}`,
      's/GB',
      (it) => it.cpuSecondsPerGb,
    ),
    row(
      `vortex.${wire}.faults@${size}`,
      `page faults of both ends in a GB by ${wire}`,
      'faults/GB',
      (it) => it.faultsPerGb,
    ),
  ];
}

const touched = 'one word of each page touched, next to WRITEs without a stream';

function strategyRows(strategy: Strategy, threshold: number, goal: number): readonly Row[] {
  const common = { unit: 'GB/s', better: 'higher' } as const;
  return [
    {
      ...common,
      id: `vortex.${strategy}`,
      what: `a stream on soft shm, strategy ${strategy}, ${touched}`,
      threshold: { raw: threshold },
      goal: { raw: goal },
      prepare: (options) => prepareRdma('soft-shm', strategy, options),
    },
    {
      ...common,
      id: `vortex.${strategy}@roce`,
      what: `a stream on soft roce, strategy ${strategy}, ${touched}`,
      prepare: (options) => prepareRdma('soft-roce', strategy, options),
    },
  ];
}

export const vortexNetRows: readonly Row[] = [
  {
    id: 'vortex.tcp',
    what: 'a stream that is filled on one host and read on the other, over TCP, next to iperf3',
    unit: 'GB/s',
    better: 'higher',
    threshold: { iperf3: 0.9 },
    goal: { iperf3: 1.0 },
    prepare: prepareTcp,
  },
  ...strategyRows('pool', 0.8, 0.95),
  ...strategyRows('copy', 0.5, 0.8),
  ...strategyRows('register', 0.3, 0.7),
  ...sweepSizes.flatMap((size) => sweepWires.flatMap((wire) => sweepRows(size, wire))),
];
