// `millrace perf`: measures a wire with the options and columns of perftest, on any device.

import { type Command, InvalidArgumentError } from 'commander';
import {
  defaultIterations,
  defaultSize,
  type PerfDocument,
  type PerfTest,
  type PingpongOptions,
  perfTests,
  pingpongLines,
  runClient,
  runPingpong,
  runServer,
  tableOf,
  testTitles,
} from '../perf/index.ts';
import type { AddCommand, CommandContext } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import type { World } from './world.ts';

interface Options {
  readonly port: number;
  readonly size?: number;
  readonly iters?: number;
  readonly device?: string;
  readonly duration?: number;
  readonly qp: number;
  readonly txDepth: number;
  readonly json?: boolean;
}

export const addPerf: AddCommand = (program, context) => {
  const perf = program
    .command('perf')
    .description('Measure a wire as perftest does. The side without a host is the server; the other names it.');
  for (const test of perfTests) addTest(perf, test, context);
  addPingpong(perf, context);
};

interface PingpongFlags {
  readonly port: number;
  readonly size: number;
  readonly iters: number;
  readonly rxDepth: number;
  readonly mtu: number;
  readonly gidIdx?: number;
  readonly device?: string;
  readonly chk?: boolean;
  readonly json?: boolean;
}

/** The options are those of ibv_rc_pingpong, which may be the other side. */
function addPingpong(perf: Command, { world, finish }: CommandContext): void {
  perf
    .command('pingpong')
    .description(
      'Send messages there and back, as ibv_rc_pingpong does, which may be the other side. Give both sides the same -n.',
    )
    .argument('[host]', 'host of the server; without it, this side is the server')
    .option('-p, --port <port>', 'port of the server', portNumber, 18_515)
    .option('-d, --device <name>', 'RDMA device (default: the first)')
    .option('-s, --size <bytes>', 'size of a message', count, 4096)
    .option('-n, --iters <n>', 'number of messages', count, 1000)
    .option('-r, --rx-depth <n>', 'receives posted at a time', count, 500)
    .option('-m, --mtu <bytes>', 'path MTU', count, 1024)
    .option('-g, --gid-idx <n>', 'local GID index (default: chosen; see millrace dev)', gidIndex)
    .option('-c, --chk', 'check the data: the client marks it, the server compares')
    .option('--json', 'print one JSON document')
    .action((host: string | undefined, flags: PingpongFlags) => finish(() => pingpong(host, flags, world)));
}

async function pingpong(host: string | undefined, flags: PingpongFlags, world: World): Promise<ExitCode> {
  const document = await runPingpong({
    host,
    port: flags.port,
    device: flags.device,
    gidIndex: flags.gidIdx,
    sizeBytes: flags.size,
    iterations: flags.iters,
    rxDepth: flags.rxDepth,
    mtu: flags.mtu as PingpongOptions['mtu'],
    isChecked: flags.chk ?? false,
    signal: world.signal,
    say: (line) => void world.stderr.write(`${line}\n`),
  });
  world.stdout.write(flags.json ? `${JSON.stringify(document)}\n` : `${pingpongLines(document).join('\n')}\n`);
  return exitCode.ok;
}

function addTest(perf: Command, test: PerfTest, { world, finish }: CommandContext): void {
  perf
    .command(test)
    .description(`${testTitles[test]}. The client's parameters count.`)
    .argument('[host]', 'host of the server; without it, this side is the server')
    .option('-p, --port <port>', 'port of the server', portNumber, 18_515)
    .option('-d, --device <name>', 'RDMA device (default: the first)')
    .option('-s, --size <bytes>', `size of a message (default: ${defaultSize(test)})`, count)
    .option('-n, --iters <n>', `number of messages (default: ${defaultIterations(test)})`, count)
    .option('-D, --duration <seconds>', 'run for so long instead of a number of messages', count)
    .option('-q, --qp <n>', 'number of queue pairs', count, 1)
    .option('-t, --tx-depth <n>', 'requests outstanding in each queue pair', count, 128)
    .option('-F, --CPU-freq', 'accepted and ignored, for old scripts')
    .option('--json', 'print one JSON document')
    .action((host: string | undefined, options: Options) => finish(() => perfTest(test, host, options, world)));
}

async function perfTest(test: PerfTest, host: string | undefined, options: Options, world: World): Promise<ExitCode> {
  const { port, device, json = false } = options;
  const say = (line: string): void => void world.stderr.write(`${line}\n`);
  const common = { test, port, device, signal: world.signal, say };
  say(testTitles[test]);
  const document =
    host === undefined
      ? await runServer(common)
      : await runClient({
          ...common,
          host,
          sizeBytes: options.size ?? defaultSize(test),
          iterations: options.iters ?? defaultIterations(test),
          durationS: options.duration ?? 0,
          queuePairs: options.qp,
          txDepth: options.txDepth,
        });
  world.stdout.write(json ? `${JSON.stringify(document)}\n` : textOf(document));
  return exitCode.ok;
}

function textOf(document: PerfDocument): string {
  return tableOf(document)
    .map((line) => `${line}\n`)
    .join('');
}

function count(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new InvalidArgumentError('Give a positive whole number.');
}

function portNumber(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0 && value <= 65_535) return value;
  throw new InvalidArgumentError('Give a number from 0 to 65535.');
}

function gidIndex(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0 && value <= 255) return value;
  throw new InvalidArgumentError('Give a number from 0 to 255.');
}
