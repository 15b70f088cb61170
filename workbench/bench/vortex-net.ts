// Rows vortex.tcp, vortex.pool, vortex.copy and vortex.register: streams between two lab hosts, next to iperf3 and to the raw wire.

import { fileURLToPath } from 'node:url';
import { MillraceError, UnsupportedError } from '../../src/errors.ts';
import { findProgram, Lab } from '../../src/lab/index.ts';
import type { Strategy } from '../../src/vortex/net/index.ts';
import { reserveHugePages } from './huge-pages.ts';
import type { Contest, Row } from './row.ts';
import { LineProgram } from './steer-program.ts';
import type { StreamJob, StreamReport } from './vortex-net-program.ts';

const MIB = 2 ** 20;
const HUGE_PAGE_BYTES = 2 * MIB;
/** Shorter ones would show how streams start, and not how they run: V8 compiles the loops of each engine anew. */
const LEAST_ROUND_MS = 600;
/** About what a stream carries in a ms: for how much to carry in a round. */
const TCP_BYTES_PER_MS = 2e6;
const SHM_BYTES_PER_MS = 12e6;
const ROCE_BYTES_PER_MS = 0.4e6;
/** Of the raw wire, at each end: many times what a processor's cache holds, and less where a pass over it takes long. */
const SHM_REGION_BYTES = 256 * MIB;
const ROCE_REGION_BYTES = 64 * MIB;
const IPERF_PORT = '5201';

const program = fileURLToPath(new URL('vortex-net-program.ts', import.meta.url));

type Geometry = Pick<StreamJob, 'blockBytes' | 'poolBlocks'>;

/** As long as the pool fits the processor's cache, what one end writes there the other need not fetch from memory. */
const tcpPool: Geometry = { blockBytes: 2 * MIB, poolBlocks: 8 };
const rdmaPool: Geometry = { blockBytes: 4 * MIB, poolBlocks: 4 };

interface PrepareOptions {
  readonly roundMs: number;
  readonly signal: AbortSignal;
}

interface Carried {
  readonly gbPerS: number;
  /** Of both programs. */
  readonly cpuSecondsPerGb: number;
  readonly faultsPerGb: number;
}

/** Two hosts with a program each. The first is the sender, or writes. */
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
    const pair = new StreamPair(lab, start('a'), start('b'), signal, undo.move());
    return pair;
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

  async stream(job: Omit<StreamJob, 'kind' | 'host' | 'localAddress' | 'regionBytes'>): Promise<Carried> {
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
    caller: LineProgram,
    calling: StreamJob,
  ): Promise<readonly [StreamReport, StreamReport]> {
    listener.write(JSON.stringify(listening));
    const port = JSON.parse(await listener.line(this.#signal)) as number;
    caller.write(JSON.stringify({ ...calling, port }));
    const lines = await Promise.all([listener.line(this.#signal), caller.line(this.#signal)]);
    const [first, second] = lines.map((line) => JSON.parse(line) as StreamReport);
    if (first === undefined || second === undefined) throw new MillraceError('MILLRACE_ERR_FAILED', 'no report');
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
  return wholeBlocks(Math.max(roundMs, LEAST_ROUND_MS) * bytesPerMs, blocks);
}

/** Its server in the receiver's host, its client in the sender's: the same way as the stream. In GB/s. */
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
  const kept = undo.move();
  return { ours, against: { iperf3 }, [Symbol.asyncDispose]: () => kept.disposeAsync() };
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
  const kept = undo.move();
  return { ours, against: { raw }, [Symbol.asyncDispose]: () => kept.disposeAsync() };
}

/** For both ends, where the system may be asked for some. */
function reservePools({ blockBytes, poolBlocks }: Geometry, moreBytes = 0): Disposable {
  return reserveHugePages(Math.ceil((2 * blockBytes * poolBlocks + moreBytes) / HUGE_PAGE_BYTES));
}

/** One block size on one wire: rate, faults or processor time. */
async function prepareSweep(
  blockBytes: number,
  device: string | undefined,
  figure: (carried: Carried) => number,
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
  const kept = undo.move();
  return { ours, against: {}, [Symbol.asyncDispose]: () => kept.disposeAsync() };
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
  const row = (id: string, what: string, unit: string, figure: (carried: Carried) => number): Row => ({
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

const touched = 'a word of each page touched, next to WRITEs without a stream';

function strategyRows(strategy: Strategy, bar: number, goal: number): readonly Row[] {
  const common = { unit: 'GB/s', better: 'higher' } as const;
  return [
    {
      ...common,
      id: `vortex.${strategy}`,
      what: `a stream on soft shm, strategy ${strategy}, ${touched}`,
      bar: { raw: bar },
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
    what: 'a stream that is filled on one host and looked at on the other, over TCP, next to iperf3',
    unit: 'GB/s',
    better: 'higher',
    bar: { iperf3: 0.9 },
    goal: { iperf3: 1.0 },
    prepare: prepareTcp,
  },
  ...strategyRows('pool', 0.8, 0.95),
  ...strategyRows('copy', 0.5, 0.8),
  ...strategyRows('register', 0.3, 0.7),
  ...sweepSizes.flatMap((size) => sweepWires.flatMap((wire) => sweepRows(size, wire))),
];
