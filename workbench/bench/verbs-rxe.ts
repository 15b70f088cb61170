// Rows verbs.rxe.* and roce.rxe.*, in a guest: our verbs on the kernel's software RDMA device
// (rxe), and soft-roce, each in turns with perftest on rxe.

import { fileURLToPath } from 'node:url';
import { MillraceError } from '../../src/errors.ts';
import { Guest } from '../../src/lab/vm/index.ts';
import { type Contest, contestOf, type Entrant, type Rival, type Row } from './row.ts';

/** What both entrants do; verbs-rxe-driver.ts runs it. */
interface RxeLoop {
  /** The device of ours: the kernel's, or the soft device. */
  readonly device: 'rxe0' | 'soft-roce';
  readonly kind: 'stream' | 'ask';
  readonly test: 'write-bw' | 'send-lat';
  readonly sizeBytes: number;
  /** About how many iterations take 1 ms, on an emulated processor. */
  readonly perMs: number;
}

export interface RxeTask {
  readonly loop: RxeLoop;
  readonly roundMs: number;
  /**
   * Named pipes: for each line with an entrant's name in one there is a line with its figure in the
   * other.
   */
  readonly commands: string;
  readonly answers: string;
}

const folder = '/run/millrace-bench';
const answerMs = 120_000;
const warmUps = 6;

async function prepareRxe(loop: RxeLoop, rival: Rival, roundMs: number, signal: AbortSignal): Promise<Contest> {
  await using undo = new AsyncDisposableStack();
  const guest = undo.use(await Guest.boot({ signal }));
  await guest.addRxe();
  const task: RxeTask = { loop, roundMs, commands: `${folder}/commands`, answers: `${folder}/answers` };
  // Autogroups would give all programs the same share, whatever their scheduling policy.
  const ungroup = 'echo 0 > /proc/sys/kernel/sched_autogroup_enabled';
  await guest.runOk(['sh', '-c', `${ungroup} && mkdir ${folder} && mkfifo ${task.commands} ${task.answers}`]);
  const file = new URL('verbs-rxe-driver.ts', import.meta.url);
  // Both entrants poll on both processors, at idle priority: the kernel's threads that move the
  // packets must run first, or every packet waits for the scheduler's tick. On an emulated
  // processor V8 now and then crashes when it recompiles running WebAssembly (the type stripper).
  const node = [process.execPath, '--no-warnings', '--liftoff-only'];
  // rxe has the RoCEv2 port in the first network namespace.
  const apart = 'ip netns add soft && ip -n soft link set lo up';
  const prefix = loop.device === 'soft-roce' ? ['ip', 'netns', 'exec', 'soft'] : [];
  if (prefix.length > 0) await guest.runOk(['sh', '-c', apart]);
  const words = [...prefix, 'chrt', '--idle', '0', ...node, fileURLToPath(file), JSON.stringify(task)];
  const env = { NODE_COMPILE_CACHE: '/tmp/compile-cache' };
  const ended = guest.run(words, { env }).then(({ status, stderr }) => {
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `measure in a guest: the program there ended with status ${status}: ${stderr.slice(-1000)}`,
    );
  });
  ended.catch(() => {});
  const entrant = (name: string): Entrant => {
    const script = `echo ${name} > ${task.commands} && head -n 1 ${task.answers}`;
    return async () => {
      const asked = guest.runOk(['sh', '-c', script], { timeoutMs: answerMs, signal });
      return Number((await Promise.race([asked, ended])).stdout);
    };
  };
  // Runs without measuring: V8 compiles the loops, and the emulator compiles V8's code.
  for (let warm = 0; warm < warmUps; warm++) await entrant('ours')(signal);
  return contestOf(undo, entrant('ours'), { [rival]: entrant('perftest') });
}

function rxeRow(row: Omit<Row, 'prepare'>, loop: RxeLoop): Row {
  // The rival of our verbs is perftest on the same device, that of the soft device is rxe.
  const rival = loop.device === 'rxe0' ? 'perftest' : 'rxe';
  return { ...row, prepare: ({ roundMs, signal }) => prepareRxe(loop, rival, roundMs, signal) };
}

export const verbsRxeRows: readonly Row[] = [
  rxeRow(
    {
      id: 'verbs.rxe.bw',
      what: 'writes of 64 KiB on rxe in a guest, next to ib_write_bw',
      unit: 'MiB/s',
      better: 'higher',
      threshold: { perftest: 0.7 },
      goal: { perftest: 0.95 },
    },
    { device: 'rxe0', kind: 'stream', test: 'write-bw', sizeBytes: 65_536, perMs: 2 },
  ),
  rxeRow(
    {
      id: 'verbs.rxe.lat',
      what: 'half a round trip of a 64 B SEND on rxe in a guest, next to ib_send_lat, median',
      unit: 'us',
      better: 'lower',
      threshold: { perftest: 1.5 },
      goal: { perftest: 1.05 },
    },
    { device: 'rxe0', kind: 'ask', test: 'send-lat', sizeBytes: 64, perMs: 5 },
  ),
  rxeRow(
    {
      id: 'roce.rxe.bw',
      what: 'writes of 64 KiB on soft-roce in a guest, next to ib_write_bw on rxe',
      unit: 'MiB/s',
      better: 'higher',
      threshold: { rxe: 0.3 },
      goal: { rxe: 1 },
    },
    { device: 'soft-roce', kind: 'stream', test: 'write-bw', sizeBytes: 65_536, perMs: 2 },
  ),
  rxeRow(
    {
      id: 'roce.rxe.lat',
      what: 'half a round trip of a 64 B SEND on soft-roce in a guest, next to ib_send_lat on rxe, median',
      unit: 'us',
      better: 'lower',
      threshold: { rxe: 3 },
      goal: { rxe: 1 },
    },
    { device: 'soft-roce', kind: 'ask', test: 'send-lat', sizeBytes: 64, perMs: 5 },
  ),
];
