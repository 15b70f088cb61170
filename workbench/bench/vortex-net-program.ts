// A host's side of vortex.tcp and its kin, as a program of its own: a line of JSON is a stream to send or to receive, a line is the answer.

import { createInterface } from 'node:readline';
import { openReceiver, openSender, type Strategy } from '../../src/vortex/net/index.ts';
import { offerRaw, writeRaw } from './vortex-raw.ts';

/** What the program does with the memory: fills it as memset does, or touches a word of each page. */
export type Touch = 'fill' | 'word';

export interface StreamJob {
  /** `offer` and `write` are the two ends of the raw wire. */
  readonly kind: 'send' | 'receive' | 'offer' | 'write';
  readonly sizeBytes: number;
  readonly blockBytes: number;
  readonly poolBlocks: number;
  readonly touch: Touch;
  readonly device?: string | undefined;
  readonly strategy?: Strategy | undefined;
  /** Where the one who listens is. */
  readonly host: string;
  readonly port?: number;
  /** Of the raw wire. */
  readonly localAddress: string;
  readonly regionBytes: number;
}

export interface StreamReport {
  /** From the first touch to `done`. */
  readonly seconds: number;
  /** Of the whole process, engine and pager included. */
  readonly cpuSeconds: number;
  readonly faults: number;
}

const PAGE_WORDS = 1024;
const FILL_BYTES = 1024 * 1024;

/** The raw wire neither fills nor reads, so its rival touches as little as a program can. */
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
