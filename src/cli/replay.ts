// `millrace replay`: makes the verbs calls of a recording again on a device, and reports what came
// out differently.

import { createReadStream } from 'node:fs';
import { InvalidArgumentError } from 'commander';
import { UsageError } from '../errors.ts';
import { ibverbsProvider } from '../providers/ibverbs/index.ts';
import { type ReplayReport, replay } from '../providers/recording/index.ts';
import { softProvider } from '../providers/soft/index.ts';
import { didYouMean } from '../text/index.ts';
import type { Provider } from '../verbs/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import type { World } from './world.ts';

interface Options {
  readonly device?: string;
  readonly timeout: number;
  readonly json?: boolean;
}

const providers: readonly Provider[] = [softProvider, ibverbsProvider];

export const addReplay: AddCommand = (program, { world, finish }) => {
  program
    .command('replay')
    .description('Make the verbs calls of a recording again, and report completions that differ (exit status 1).')
    .argument('<file>', 'a recording of millrace backend --record')
    .option('-d, --device <name>', 'RDMA device (default: the recorded one, or a soft one)')
    .option('--timeout <seconds>', 'how long a completion may take', seconds, 5)
    .option('--json', 'print one JSON document')
    .action((file: string, options: Options) => finish(() => replayFile(file, options, world)));
};

async function replayFile(file: string, options: Options, world: World): Promise<ExitCode> {
  const report = await replay(bytesOf(file), {
    provider: providerOf(options.device),
    device: options.device,
    completionTimeoutMs: options.timeout * 1000,
    signal: world.signal,
  });
  world.stdout.write(options.json ? `${JSON.stringify({ v: 1, ...report })}\n` : textOf(report));
  return report.differenceCount === 0 ? exitCode.ok : exitCode.failed;
}

async function* bytesOf(file: string): AsyncGenerator<Uint8Array> {
  try {
    for await (const chunk of createReadStream(file)) yield chunk as Uint8Array;
  } catch (error) {
    throw new UsageError(`replay ${file}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
}

function providerOf(device: string | undefined): Provider {
  if (device === undefined) return softProvider;
  const found = providers.find((provider) => provider.listDevices().some(({ name }) => name === device));
  if (found !== undefined) return found;
  const names = providers.flatMap((provider) => provider.listDevices().map(({ name }) => name));
  throw new UsageError(`replay: there is no RDMA device ${device}${didYouMean(device, names)}`);
}

function textOf(report: ReplayReport): string {
  const { device, calls, requests, completions, differences, differenceCount, outside } = report;
  const notes: readonly (readonly [number, string])[] = [
    [outside.length, 'QPs whose peer is not in the recording; nothing was posted to them'],
    [report.skipped, 'calls and completions left out because of that, or because something could not be made'],
    [report.unrecordedRanges, 'ranges of memory whose bytes are not in the recording; others were sent'],
    [report.unasked, 'completions that the recorded program had not asked for'],
  ];
  return [
    ...outside.map(({ line, what }) => `line ${line}: ${what}`),
    ...differences.map(({ line, what }) => `line ${line}: ${what}`),
    ...(differenceCount > differences.length ? [`and ${differenceCount - differences.length} more`] : []),
    `${calls} calls on ${device}: ${requests} requests, ${completions} completions, ${differenceCount} differences`,
    ...notes.flatMap(([count, what]) => (count === 0 ? [] : [`${count} ${what}`])),
    ...(report.isTruncated ? ['the recording had reached its bound: the program went on after it'] : []),
  ]
    .map((line) => `${line}\n`)
    .join('');
}

function seconds(text: string): number {
  const value = Number(text);
  if (value > 0 && value <= 3600) return value;
  throw new InvalidArgumentError('Give a number of seconds, up to 3600.');
}
