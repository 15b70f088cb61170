// `millrace perf`: the letters and columns of perftest, on any device. The server has no host argument, the client has.

import { type Command, InvalidArgumentError } from 'commander';
import {
  defaultIterations,
  defaultSize,
  type PerfDocument,
  type PerfTest,
  perfTests,
  runClient,
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
    .description('measure a wire as perftest does: one side without a host is the server, the other names it');
  for (const test of perfTests) addTest(perf, test, context);
};

function addTest(perf: Command, test: PerfTest, { world, finish }: CommandContext): void {
  perf
    .command(test)
    .description(`${testTitles[test]}. The client's parameters count.`)
    .argument('[host]', 'where the server is; without it, this is the server')
    .option('-p, --port <port>', 'where they meet', portNumber, 18_515)
    .option('-d, --device <name>', 'RDMA device (default: the first)')
    .option('-s, --size <bytes>', `size of a message (default: ${defaultSize(test)})`, count)
    .option('-n, --iters <n>', `how often (default: ${defaultIterations(test)})`, count)
    .option('-D, --duration <seconds>', 'for so long, instead of so often', count)
    .option('-q, --qp <n>', 'queue pairs', count, 1)
    .option('-t, --tx-depth <n>', 'requests under way in a queue pair', count, 128)
    .option('-F, --CPU-freq', 'accepted for the sake of old scripts')
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
  throw new InvalidArgumentError('expected a positive whole number');
}

function portNumber(text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value >= 0 && value <= 65_535) return value;
  throw new InvalidArgumentError('expected 0 to 65535');
}
