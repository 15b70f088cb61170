// Rows verbs.shm.*: the soft device between two processes on two processors, next to plain copies
// of the same size.

import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Host } from '../../src/lab/index.ts';
import { threadAffinity } from '../../src/native/index.ts';
import type { PerfTest } from '../../src/perf/index.ts';
import { figureOf, stopProcess } from './figure-process.ts';
import { type Contest, contestOf, type Row } from './row.ts';

/** What the client process of a row (verbs-loop.ts) runs. */
export interface VerbsLoop {
  readonly kind: 'bulk' | 'stream' | 'post' | 'ask';
  readonly device: string;
  readonly test: PerfTest;
  readonly sizeBytes: number;
  /** About how many iterations take 1 ms. */
  readonly perMs: number;
  /** The address of the server for the client. */
  readonly dial?: string;
}

export interface VerbsContest extends Contest {
  /** The process ids of both ends. */
  readonly pids: readonly number[];
}

/** `hosts`: the lab hosts in which the two ends run. Default: both run in this host. */
export async function prepareVerbs(
  loop: VerbsLoop,
  roundMs: number,
  signal: AbortSignal,
  hosts?: { readonly client: Host; readonly server: Host },
): Promise<VerbsContest> {
  await using undo = new AsyncDisposableStack();
  const cpus = threadAffinity();
  const server = undo.adopt(start('server', cpus[0], 0, loop, hosts), stopProcess);
  const port = await figureOf(server, signal);
  const client = undo.adopt(start('client', cpus.at(-1) ?? 0, port, loop, hosts), stopProcess);
  await figureOf(client, signal);
  const entrant = (name: string) => async (): Promise<number> => {
    client.send({ name, iterations: Math.ceil(roundMs * loop.perMs) });
    return figureOf(client, signal);
  };
  const against = loop.kind === 'bulk' ? { memcpy: entrant('memcpy') } : {};
  // One run without measuring, so that V8 has compiled the loops and all pages are mapped.
  for (const run of [entrant('ours'), ...Object.values(against)]) await run();
  const pids = [server, client].flatMap(({ pid }) => pid ?? []);
  return { ...contestOf(undo, entrant('ours'), against), pids };
}

function start(
  role: 'client' | 'server',
  cpu: number,
  port: number,
  loop: VerbsLoop,
  hosts?: { readonly client: Host; readonly server: Host },
): ChildProcess {
  const file = new URL('verbs-loop.ts', import.meta.url);
  const words = [role, String(cpu), String(port), JSON.stringify({ ...loop, dial: hosts?.server.ipv4 ?? '127.0.0.1' })];
  // RoCEv2 has one port for each address.
  const address = hosts?.[role].ipv4 ?? (role === 'server' ? '127.0.0.1' : '127.0.0.2');
  const env = { ...process.env, MILLRACE_SOFT_ADDRESS: address };
  if (hosts === undefined) return fork(file, words, { env });
  return hosts[role].spawn(process.execPath, [...process.execArgv, fileURLToPath(file), ...words], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

function verbsRow(row: Omit<Row, 'prepare'>, loop: VerbsLoop): Row {
  return { ...row, prepare: ({ roundMs, signal }) => prepareVerbs(loop, roundMs, signal) };
}

export const verbsRows: readonly Row[] = [
  verbsRow(
    {
      id: 'verbs.shm.bw',
      what: 'writes of 64 KiB, next to copies of 64 KiB',
      unit: 'MiB/s',
      better: 'higher',
      threshold: { memcpy: 0.8 },
      goal: { memcpy: 0.95 },
    },
    { kind: 'bulk', device: 'soft-shm', test: 'write-bw', sizeBytes: 65_536, perMs: 100 },
  ),
  verbsRow(
    {
      id: 'verbs.shm.lat',
      what: 'half a round trip of a 64 B write, both sides polling, median',
      unit: 'us',
      better: 'lower',
      threshold: 2,
      goal: 0.4,
    },
    { kind: 'ask', device: 'soft-shm', test: 'write-lat', sizeBytes: 64, perMs: 500 },
  ),
  verbsRow(
    {
      id: 'verbs.shm.post',
      what: 'a 64 B write, filled in, posted and reaped in batches of 64',
      unit: 'ns',
      better: 'lower',
      threshold: 150,
      goal: 40,
    },
    { kind: 'post', device: 'soft-shm', test: 'write-bw', sizeBytes: 64, perMs: 5000 },
  ),
];
