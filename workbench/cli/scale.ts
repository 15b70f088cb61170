// `millrace scale`, which is `npm run scale`: what many peers, hosts and connections cost a daemon,
// as a table.

import { InvalidArgumentError } from 'commander';
import type { AddCommand, World } from '../../src/cli/index.ts';
import { bytesText, type ExitCode, exitCode, painter, table } from '../../src/cli/index.ts';
import { type PeersReport, runPeers } from '../scale/index.ts';

interface Options {
  readonly peers: number;
  readonly dialed: number;
  readonly endpoints: number;
  readonly json?: boolean;
}

const about = `
One real daemon in a lab host finds its peers by etcd; one process plays all of them, with the real control protocol
and no links. Times are from listen() until the last one knows.

Examples:
  millrace scale --peers 100
  millrace scale --json > scale.json`;

export const addScale: AddCommand = (program, { world, finish }) => {
  program
    .command('scale')
    .description('measure what many peers, hosts and connections cost a daemon')
    .option('--peers <n>', 'peers of one daemon, played by one process', within(1, 4000), 1000)
    .option('--dialed <n>', 'so many of these peers are dialed by the daemon; the others dial it', within(0, 4000), 0)
    .option('--endpoints <n>', 'endpoints that each of them announces', within(0, 16_000), 100)
    .option('--json', 'print the report as one JSON document')
    .addHelpText('after', about)
    .action((options: Options) => finish(() => runScale(options, world)));
};

async function runScale(options: Options, world: World): Promise<ExitCode> {
  const paint = painter(world.stderr, world.env);
  const onStep = (what: string): void => void world.stderr.write(`${paint('dim', what)}\n`);
  const { signal } = world;
  const peers = await runPeers({
    peers: options.peers,
    dialed: options.dialed,
    endpointsEach: options.endpoints,
    idleMs: 5000,
    times: 5,
    signal,
    onStep,
  });
  if (options.json) world.stdout.write(`${JSON.stringify({ v: 1, peers })}\n`);
  else for (const line of peersLines(peers)) world.stdout.write(`${line}\n`);
  return exitCode.ok;
}

function peersLines(report: PeersReport): readonly string[] {
  const { alone, idle, peers } = report;
  const each = (idle.residentBytes - alone.residentBytes) / peers;
  const rows: readonly (readonly string[])[] = [
    ['memory alone', bytesText(alone.residentBytes)],
    [`memory with ${peers} idle peers`, bytesText(idle.residentBytes), `${bytesText(each)} each`],
    ['descriptors alone, with peers', `${alone.descriptors}, ${idle.descriptors}`],
    ['mappings alone, with peers', `${alone.mappings}, ${idle.mappings}`],
    ['processor while idle', `${report.idleCores.toFixed(3)} cores`],
    ['until all were up', msText(report.upMs), `${report.attempts} attempts failed on the way`],
    ['processor until then', `${report.upCpuSeconds.toFixed(2)} s`],
    ['a new listener, first peer', ...spreadText(report.firstKnownMs)],
    ['a new listener, last peer', ...spreadText(report.lastKnownMs)],
    [
      `processor with ${report.listensPerSecond.toFixed(0)} listens a second`,
      `${report.listenCores.toFixed(3)} cores`,
      `${report.listenMainCores.toFixed(3)} of them in the main thread`,
    ],
    ['a real peer’s listener, kernel', ...spreadText(report.realAnnouncedMs)],
    ['a played peer’s listener, kernel', ...spreadText(report.playedAnnouncedMs)],
    ...Object.entries(report.losts).map(([reason, count]) => ['connections lost', String(count), reason]),
  ];
  return table([`one daemon, ${peers} peers of ${report.endpointsEach} endpoints`, '', ''], rows);
}

function spreadText(values: readonly number[]): readonly string[] {
  if (values.length === 0) return ['-', 'the daemon announces peers only when they have links'];
  const sorted = values.toSorted((left, right) => left - right);
  return [msText(sorted[sorted.length >> 1] ?? 0), `${msText(sorted[0] ?? 0)} to ${msText(sorted.at(-1) ?? 0)}`];
}

function msText(ms: number): string {
  return ms < 100 ? `${ms.toFixed(1)} ms` : ms < 10_000 ? `${ms.toFixed(0)} ms` : `${(ms / 1000).toFixed(1)} s`;
}

function within(first: number, last: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (Number.isSafeInteger(value) && value >= first && value <= last) return value;
    throw new InvalidArgumentError(`expected a whole number from ${first} to ${last}`);
  };
}
