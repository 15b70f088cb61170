// Rows roce.veth.*: soft-roce between two lab hosts, next to a TCP stream between the same hosts.

import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { MillraceError } from '../../src/errors.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import { type Contest, contestOf, type Row } from './row.ts';
import { prepareVerbs, type VerbsContest, type VerbsLoop } from './verbs.ts';

const loop: VerbsLoop = { kind: 'stream', device: 'soft-roce', test: 'write-bw', sizeBytes: 65_536, perMs: 10 };
const iperfPort = 5201;
const GIGABYTE = 1e9;
/** USER_HZ, the unit of /proc/PID/stat. */
const TICKS_PER_S = 100;

interface Prepared extends Contest {
  readonly verbs: VerbsContest;
}

async function prepareHosts(mtu: number, roundMs: number, signal: AbortSignal): Promise<Prepared> {
  await using undo = new AsyncDisposableStack();
  const lab = undo.use(await Lab.create({ hosts: 2, mtu, signal }));
  const [a, b] = lab.hosts;
  const verbs = undo.use(await prepareVerbs(loop, roundMs, signal, { client: a, server: b }));
  return { verbs, ...contestOf(undo, verbs.ours, { iperf3: () => iperf3(a, b, roundMs, signal) }) };
}

/** MiB/s of one TCP stream. */
async function iperf3(client: Host, server: Host, roundMs: number, signal: AbortSignal): Promise<number> {
  const words = ['-s', '-1', '--forceflush', '-p', String(iperfPort), '-B', server.ipv4];
  const serving = server.spawn('iperf3', words, { stdio: ['ignore', 'pipe', 'ignore'] });
  try {
    // It prints a line when it listens.
    if (serving.stdout !== null) await once(serving.stdout, 'data', { signal });
    const asking = ['-c', server.ipv4, '-p', String(iperfPort), '-t', String(Math.max(1, roundMs / 1000)), '-J'];
    const { stdout, stderr } = await client.run('iperf3', asking, { signal });
    const bitsPerS = JSON.parse(stdout).end?.sum_received?.bits_per_second;
    if (typeof bitsPerS === 'number') return bitsPerS / 8 / 1024 ** 2;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `read the figure of iperf3: unexpected output: ${stderr || stdout.slice(0, 500)}`,
    );
  } finally {
    serving.kill();
  }
}

/** The processor time of both ends for 1 GB, in s. */
async function prepareCpu(mtu: number, roundMs: number, signal: AbortSignal): Promise<Contest> {
  const prepared = await prepareHosts(mtu, roundMs, signal);
  const { verbs } = prepared;
  const bytes = Math.ceil(roundMs * loop.perMs) * loop.sizeBytes;
  const ours = async (): Promise<number> => {
    const before = cpuSeconds(verbs.pids);
    await verbs.ours(signal);
    return ((cpuSeconds(verbs.pids) - before) * GIGABYTE) / bytes;
  };
  return { ours, against: {}, [Symbol.asyncDispose]: () => prepared[Symbol.asyncDispose]() };
}

function cpuSeconds(pids: readonly number[]): number {
  let ticks = 0;
  for (const pid of pids) {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    ticks += Number(fields[11]) + Number(fields[12]);
  }
  return ticks / TICKS_PER_S;
}

function hostsRow(mtu: number): Row {
  return {
    id: `roce.veth.${mtu}`,
    what: `writes of 64 KiB on soft-roce between two hosts, MTU ${mtu}, next to a TCP stream`,
    unit: 'MiB/s',
    better: 'higher',
    prepare: ({ roundMs, signal }) => prepareHosts(mtu, roundMs, signal),
  };
}

function cpuRow(mtu: number): Row {
  return {
    id: `roce.veth.${mtu}.cpu`,
    what: `processor time of both ends of soft-roce for a GB, MTU ${mtu}`,
    unit: 's/GB',
    better: 'lower',
    prepare: ({ roundMs, signal }) => prepareCpu(mtu, roundMs, signal),
  };
}

export const roceRows: readonly Row[] = [hostsRow(1500), cpuRow(1500), hostsRow(9000), cpuRow(9000)];
