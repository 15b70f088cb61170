// `millrace scale`, which is `npm run scale`: what many peers, hosts and connections cost a daemon,
// as tables.

import { InvalidArgumentError } from 'commander';
import type { AddCommand, World } from '../../src/cli/index.ts';
import { type ExitCode, exitCode, painter } from '../../src/cli/index.ts';
import {
  type ConnectionsReport,
  hostsHere,
  type MeshReport,
  type PeersReport,
  runConnections,
  runMesh,
  runPeers,
} from '../scale/index.ts';
import { connectionsLines, meshLines, peersLines } from './scale-tables.ts';

interface Options {
  readonly peers: number;
  readonly dialed: number;
  readonly endpoints: number;
  readonly hosts: number;
  readonly connections: number;
  readonly idleSeconds: number;
  readonly times: number;
  readonly json?: boolean;
}

interface ScaleReport {
  readonly v: 1;
  readonly isOk: boolean;
  readonly peers?: PeersReport;
  readonly mesh?: MeshReport;
  readonly connections?: ConnectionsReport;
}

const about = `
Three parts, each of which 0 leaves out:
  peers        one real daemon finds its peers by etcd; one process plays all of them, with the real control protocol and
               no links. Times are from listen() until the last one knows
  hosts        that many lab hosts with real daemons found by etcd: all talk with all, every byte checked, then a third of
               the daemons is killed and started again, and everything must be carried again
  connections  as many carried connections at once from one address as the machine's limits allow, each of them asked twice

Examples:
  millrace scale --hosts 0 --connections 0
  millrace scale --peers 0 --hosts 64 --connections 0
  millrace scale --json > scale.json`;

export const addScale: AddCommand = (program, { world, finish }) => {
  program
    .command('scale')
    .description('measure what many peers, hosts and connections cost a daemon')
    .option('--peers <n>', 'peers of one daemon, played by one process', within(0, 4000), 1000)
    .option('--dialed <n>', 'so many of these peers are dialed by the daemon; the others dial it', within(0, 4000), 0)
    .option('--endpoints <n>', 'endpoints that each of them announces', within(0, 16_000), 100)
    .option('--hosts <n>', 'hosts with real daemons (default: 64, or fewer on a small machine)', within(0, 199))
    .option('--connections <n>', 'carried connections at once through one pair of daemons', within(0, 1e6), 100_000)
    .option(
      '--idle-seconds <n>',
      'how long a daemon with many peers is watched while nothing happens',
      within(1, 600),
      5,
    )
    .option('--times <n>', 'how often it is measured how long news take', within(1, 100), 5)
    .option('--json', 'print the report as one JSON document')
    .addHelpText('after', about)
    .action((options: Options) => finish(() => runScale({ ...options, hosts: options.hosts ?? hostsHere() }, world)));
};

async function runScale(options: Options, world: World): Promise<ExitCode> {
  const paint = painter(world.stderr, world.env);
  const onStep = (what: string): void => void world.stderr.write(`${paint('dim', what)}\n`);
  const show = (lines: readonly string[]): void => {
    if (options.json !== true) world.stdout.write(`${lines.join('\n')}\n\n`);
  };
  const common = { signal: world.signal, onStep };
  const { dialed, endpoints, hosts, connections } = options;
  let report: ScaleReport = { v: 1, isOk: true };
  if (options.peers > 0) {
    const times = { idleMs: options.idleSeconds * 1000, times: options.times };
    const peers = await runPeers({ peers: options.peers, dialed, endpointsEach: endpoints, ...times, ...common });
    report = { ...report, peers };
    show(peersLines(peers));
  }
  if (hosts > 1) {
    const mesh = await runMesh({ hosts, ...common });
    const isOk = mesh.problems.length === 0 && mesh.talks.every(({ carried, expected }) => carried === expected);
    report = { ...report, isOk: report.isOk && isOk, mesh };
    show(meshLines(mesh));
  }
  if (connections > 0) {
    const held = await runConnections({ connections, ...common });
    const isOk = held.answered === held.open;
    report = { ...report, isOk: report.isOk && isOk, connections: held };
    show(connectionsLines(held));
  }
  if (options.json) world.stdout.write(`${JSON.stringify(report)}\n`);
  return report.isOk ? exitCode.ok : exitCode.failed;
}

function within(first: number, last: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (Number.isSafeInteger(value) && value >= first && value <= last) return value;
    throw new InvalidArgumentError(`expected a whole number from ${first} to ${last}`);
  };
}
