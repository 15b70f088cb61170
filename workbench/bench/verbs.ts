// Rows verbs.shm.*: the soft device between two processes on two processors, next to plain copies of the same size.

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { MillraceError } from '../../src/errors.ts';
import type { Host } from '../../src/lab/index.ts';
import { threadAffinity } from '../../src/native/index.ts';
import type { PerfTest } from '../../src/perf/index.ts';
import type { Contest, Row } from './row.ts';

/** What the client process of a row runs, in the words of verbs-loop.ts. */
export interface VerbsLoop {
  readonly kind: 'bulk' | 'stream' | 'post' | 'ask';
  readonly device: string;
  readonly test: PerfTest;
  readonly sizeBytes: number;
  /** About how often in a ms. */
  readonly perMs: number;
  /** Where the client calls the server. */
  readonly dial?: string;
}

export interface VerbsContest extends Contest {
  /** Of both ends. */
  readonly pids: readonly number[];
}

/** `hosts`: of a lab, where the two ends run; both here unless said. */
export async function prepareVerbs(
  loop: VerbsLoop,
  roundMs: number,
  signal: AbortSignal,
  hosts?: { readonly client: Host; readonly server: Host },
): Promise<VerbsContest> {
  await using undo = new AsyncDisposableStack();
  const cpus = threadAffinity();
  const server = undo.adopt(start('server', cpus[0], 0, loop, hosts), stop);
  const port = await figureOf(server, signal);
  const client = undo.adopt(start('client', cpus.at(-1) ?? 0, port, loop, hosts), stop);
  await figureOf(client, signal);
  const entrant = (name: string) => async (): Promise<number> => {
    client.send({ name, iterations: Math.ceil(roundMs * loop.perMs) });
    return figureOf(client, signal);
  };
  const against = loop.kind === 'bulk' ? { memcpy: entrant('memcpy') } : {};
  // Once unmeasured, so that V8 has compiled the loops and every page is there.
  for (const run of [entrant('ours'), ...Object.values(against)]) await run();
  const kept = undo.move();
  const pids = [server, client].flatMap(({ pid }) => pid ?? []);
  return { ours: entrant('ours'), against, pids, [Symbol.asyncDispose]: () => kept.disposeAsync() };
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
  // Of RoCEv2 there is one port an address.
  const address = hosts?.[role].ipv4 ?? (role === 'server' ? '127.0.0.1' : '127.0.0.2');
  const env = { ...process.env, MILLRACE_SOFT_ADDRESS: address };
  if (hosts === undefined) return fork(file, words, { env });
  return hosts[role].spawn(process.execPath, [...process.execArgv, fileURLToPath(file), ...words], {
    env,
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
}

/** What the process answers next; its end is an error. */
async function figureOf(child: ChildProcess, signal: AbortSignal): Promise<number> {
  using ended = endOf(child);
  const [answer] = await Promise.race([once(child, 'message', { signal }), ended.promise]);
  return Number(answer.figure);
}

function endOf(child: ChildProcess): { readonly promise: Promise<never> } & Disposable {
  const { promise, reject } = Promise.withResolvers<never>();
  const onExit = (): void => reject(new MillraceError('MILLRACE_ERR_FAILED', 'a process of the bench has ended'));
  child.on('exit', onExit);
  promise.catch(() => {});
  return { promise, [Symbol.dispose]: () => void child.off('exit', onExit) };
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  if (child.connected) child.disconnect();
  const force = setTimeout(() => child.kill('SIGKILL'), 2000);
  await exited;
  clearTimeout(force);
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
      bar: { memcpy: 0.8 },
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
      bar: 2,
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
      bar: 150,
      goal: 40,
    },
    { kind: 'post', device: 'soft-shm', test: 'write-bw', sizeBytes: 64, perMs: 5000 },
  ),
];
