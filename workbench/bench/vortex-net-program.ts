// The program on one host of the vortex.tcp and RDMA rows: each line of JSON is a job, and a line
// with its report is the answer.

import { createInterface } from 'node:readline';
import { openReceiver, openSender, type Strategy } from '../../src/vortex/net/index.ts';
import { offerRaw, writeRaw } from './vortex-raw.ts';

/**
 * What the program does with the memory: fill it as memset does, or touch one word of each page.
 */
export type Touch = 'fill' | 'word';

export interface StreamJob {
  /** `offer` and `write` are the two ends of raw WRITEs. */
  readonly kind: 'send' | 'receive' | 'offer' | 'write';
  readonly sizeBytes: number;
  readonly blockBytes: number;
  readonly poolBlocks: number;
  readonly touch: Touch;
  readonly device?: string | undefined;
  readonly strategy?: Strategy | undefined;
  /** The host that listens. */
  readonly host: string;
  readonly port?: number;
  /** For raw WRITEs. */
  readonly localAddress: string;
  readonly regionBytes: number;
}

export interface StreamReport {
  /** From the first touch to `done`. */
  readonly seconds: number;
  /** Of the whole process, with engine and pager. */
  readonly cpuSeconds: number;
  readonly faults: number;
}

const PAGE_WORDS = 1024;
const FILL_BYTES = 1024 * 1024;

/**
 * Raw WRITEs neither fill nor read memory, so next to them a stream touches as little as possible.
 */
function touch(words: Int32Array, how: Touch, isWriter: boolean): number {
  let sum = 0;
  if (!isWriter) {
    for (let at = 0; at < words.length; at += PAGE_WORDS) sum = (sum + words[at]) | 0;
  } else if (how === 'fill') {
    const bytes = new Uint8Array(words.buffer, words.byteOffset, words.byteLength);
    for (let at = 0; at < bytes.length; at += FILL_BYTES) bytes.fill(at, at, Math.min(bytes.length, at + FILL_BYTES));
  } else {
    for (let at = 0; at < words.length; at += PAGE_WORDS) words[at] = at;
  }
  return sum;
}

async function stream(job: StreamJob): Promise<StreamReport> {
  const { kind, sizeBytes, blockBytes, poolBlocks, device, strategy, host, port = 0 } = job;
  const rdma = { device, strategy };
  await using end =
    kind === 'send'
      ? await openSender({ host, port: 0 }, sizeBytes, { ...rdma, blockBytes, poolBlocks, onListening: say })
      : await openReceiver(host, port, { ...rdma, poolBlocks });
  const words = end.array(Int32Array);
  const cpuBefore = process.cpuUsage();
  const startMs = performance.now();
  touch(words, job.touch, kind === 'send');
  if ('finish' in end) end.finish();
  await end.done();
  const seconds = (performance.now() - startMs) / 1e3;
  const { user, system } = process.cpuUsage(cpuBefore);
  return { seconds, cpuSeconds: (user + system) / 1e6, faults: end.counters?.faults ?? 0 };
}

async function run(job: StreamJob): Promise<StreamReport> {
  const { kind, device = 'soft-shm', host, port = 0, localAddress, regionBytes, sizeBytes, blockBytes } = job;
  if (kind === 'send' || kind === 'receive') return stream(job);
  const spec = { device, localAddress, regionBytes };
  if (kind === 'offer') await offerRaw(spec, say);
  const amount = { sizeBytes, writeBytes: blockBytes };
  const seconds = kind === 'write' ? await writeRaw(spec, { host, port }, amount) : 0;
  return { seconds, cpuSeconds: 0, faults: 0 };
}

function say(value: unknown): void {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

for await (const line of createInterface(process.stdin)) {
  say(await run(JSON.parse(line) as StreamJob));
}
