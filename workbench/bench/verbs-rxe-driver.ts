// The program in the guest of the verbs.rxe rows: runs one entrant for each line in a named pipe.

import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createReadStream, readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { MillraceError } from '../../src/errors.ts';
import { openDevice } from '../../src/providers/index.ts';
import { prepareVerbs } from './verbs.ts';
import type { RxeTask } from './verbs-rxe.ts';

const tools = { 'write-bw': 'ib_write_bw', 'send-lat': 'ib_send_lat' } as const;
/** Columns of the line with the figures: BW average, and t_typical. */
const columns = { 'write-bw': 3, 'send-lat': 4 } as const;
const perftestPort = 18_515;
const waitMs = 20;

const task = JSON.parse(process.argv[2] ?? '{}') as RxeTask;
const { loop, roundMs } = task;
/** The device of perftest, in the network namespace of the guest's first process. */
const device = 'rxe0';
const there = ['-t', '1', '-n', 'taskset', '-c'];
const iterations = Math.ceil(loop.perMs * roundMs);

/** Each end has a processor of its own, as with ours. */
async function perftest(gidIndex: number): Promise<number> {
  const common = ['-d', device, '-x', String(gidIndex), '-s', String(loop.sizeBytes), '-n', String(iterations), '-F'];
  const tool = tools[loop.test];
  const server = spawn('nsenter', [...there, '0', tool, ...common], { stdio: 'ignore' });
  const ended = once(server, 'exit');
  try {
    while (!isListening(perftestPort)) await sleep(waitMs);
    const { stdout } = await promisify(execFile)('nsenter', [...there, '1', tool, ...common, '127.0.0.1']);
    await ended;
    const line = stdout.split('\n').find((text) => text.trim().startsWith(`${loop.sizeBytes} `));
    const figure = Number(line?.trim().split(/\s+/)[columns[loop.test]]);
    if (Number.isFinite(figure)) return figure;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `read the figure of ${tool}: unexpected output ${JSON.stringify(stdout)}`,
    );
  } finally {
    server.kill();
  }
}

function isListening(port: number): boolean {
  const listening = new RegExp(`:${port.toString(16).toUpperCase().padStart(4, '0')} \\S+ 0A `);
  return ['/proc/1/net/tcp', '/proc/1/net/tcp6'].some((path) => listening.test(readFileSync(path, 'utf8')));
}

function preferredGid(): number {
  using opened = openDevice(device);
  return opened.port().gidIndex ?? 0;
}

const { signal } = new AbortController();
const gidIndex = preferredGid();
await using contest = await prepareVerbs(loop, roundMs, signal);
/** Our processes are stopped while the rival runs, because they poll. */
const signalOurs = (name: NodeJS.Signals): void => {
  for (const pid of contest.pids) process.kill(pid, name);
};
signalOurs('SIGSTOP');
// The pipe is open for writing too, so that it does not end when a writer closes it.
for await (const line of createInterface(createReadStream(task.commands, { flags: 'r+' }))) {
  let figure = 0;
  if (line === 'ours') {
    signalOurs('SIGCONT');
    figure = await contest.ours(signal);
    signalOurs('SIGSTOP');
  } else {
    figure = await perftest(gidIndex);
  }
  writeFileSync(task.answers, `${figure}\n`);
}
