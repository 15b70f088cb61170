// `millrace demo`, which is `npm start`: real programs between two hosts on this machine, over
// plain TCP, carried, and direct.

import { InvalidArgumentError, Option } from 'commander';
import type { AddCommand, World } from '../../src/cli/index.ts';
import {
  bytesText,
  type ExitCode,
  exitCode,
  featureLines,
  painter,
  rateText,
  runDirOf,
  stopped,
  table,
} from '../../src/cli/index.ts';
import { diagnose } from '../../src/doctor/index.ts';
import { type Host, Lab } from '../../src/lab/index.ts';
import type { DaemonStatus } from '../../src/status/index.ts';
import { CarriedPair, type DemoFigures, type DemoServers, measure, startTransferServer } from '../demo/index.ts';
import { startRedis } from '../worlds/index.ts';

interface Options {
  readonly json?: boolean;
  readonly once?: boolean;
  readonly wire: 'shm' | 'roce' | 'tcp';
  readonly requests: number;
  readonly clients: number;
  readonly transferMib: number;
}

const payloadBytes = 2048;
/** Of the programs that are carried, and of those that are direct. */
const ports = { redis: 6379, transfer: 7070, directRedis: 6380, directTransfer: 7071 } as const;
const MIB = 1024 * 1024;

export const addDemo: AddCommand = (program, { world, finish }) => {
  program
    .command('demo')
    .description('run real programs between two hosts on this machine, over plain TCP, carried and direct (npm start)')
    .addOption(
      new Option('--wire <wire>', 'the wire of the soft device').choices(['shm', 'roce', 'tcp']).default('shm'),
    )
    .option('--requests <n>', 'redis requests per test', positive, 50_000)
    .option('--clients <n>', 'redis connections', positive, 30)
    .option('--transfer-mib <n>', 'size of the checksummed transfer', positive, 256)
    .option('--once', 'end after the figures instead of waiting for Ctrl-C')
    .option('--json', 'print the figures as one JSON document, and end')
    .action((options: Options) => finish(() => demo(options, world)));
};

async function demo(options: Options, world: World): Promise<ExitCode> {
  const { signal } = world;
  const paint = painter(world.stderr, world.env);
  const say = (text: string): void => void world.stderr.write(`${text}\n`);
  const step = (text: string): void => say(paint('bold', text));

  step('This machine: which features of millrace work here');
  for (const line of featureLines(await diagnose({ signal }), paint)) say(`  ${line}`);

  step('Two hosts on this machine, each a network namespace of its own:');
  await using lab = await Lab.create({ hosts: ['client', 'server'], runDir: runDirOf(world), signal });
  const [client, server] = [lab.host('client'), lab.host('server')];
  for (const { name, ipv4, ipv6 } of lab.hosts) say(`  ${name.padEnd(8)}${ipv4.padEnd(14)}${ipv6}`);
  await using redis = await startRedis(server, ports.redis);
  await using transfer = await startTransferServer(server, ports.transfer, options.transferMib * MIB);
  const servers: DemoServers = { redis, transfer };
  const load = { clients: options.clients, requests: options.requests, payloadBytes };
  const what = `redis-benchmark (${options.clients} connections, values of 2 KiB) and a checksummed transfer of ${options.transferMib} MiB`;

  step(`Plain TCP: measuring ${what}`);
  const plain = await measure(client, servers, load, signal);

  step(
    `Carried: a daemon on each host, joined by the soft device's ${options.wire} wire; measuring the same programs, unchanged`,
  );
  const devices = [`soft-${options.wire}`];
  const carriedPorts = [ports.redis, ports.transfer];
  await using pair = await CarriedPair.start({ client, server, ports: carriedPorts, devices, signal });
  await pair.carrying(2, signal);
  const carried = await measure(client, servers, load, signal);

  step('Direct: the same programs once more, started as `millrace run` does; their connections stay TCP,');
  step('and after a few messages their bytes go through rings in the programs’ own memory');
  const { direct: hosts } = pair;
  await using directRedis = await startRedis(hosts.server, ports.directRedis);
  await using directTransfer = await startTransferServer(hosts.server, ports.directTransfer, options.transferMib * MIB);
  const direct = await measure(hosts.client, { redis: directRedis, transfer: directTransfer }, load, signal);

  const status = await pair.client.api.status();
  const problem = missing(status);
  if (problem !== '') {
    say(paint('red', `  ${problem}; millrace conn shows the reasons`));
    return exitCode.failed;
  }
  if (options.json) {
    const { verdicts, counters, peers, direct: promoted } = status;
    const figures = { plain, carried, direct };
    const document = { v: 2, wire: options.wire, ...load, ...figures, verdicts, counters, peers, promoted };
    world.stdout.write(`${JSON.stringify(document)}\n`);
    return exitCode.ok;
  }
  for (const line of compared(plain, carried, direct)) world.stdout.write(`  ${line}\n`);
  for (const line of carriedLines(status)) say(`  ${line}`);
  if (options.once) return exitCode.ok;
  step('Everything stays up until Ctrl-C. Try this in another terminal:');
  for (const line of hints(lab.id, pair, server)) say(`  ${line}`);
  await stopped(signal);
  say('stopping: the daemons, the programs and both hosts are removed');
  return exitCode.interrupted;
}

/** What did not go as it is shown; '' when all did. */
function missing({ verdicts, direct }: DaemonStatus): string {
  if ((verdicts.carried ?? 0) === 0) return 'no connection was carried';
  return direct.promoted === 0 ? 'no connection became direct' : '';
}

/** The figures of the three runs side by side. */
function compared(...runs: readonly [DemoFigures, DemoFigures, DemoFigures]): readonly string[] {
  const [plain] = runs;
  const ratios = (figures: readonly number[]): readonly string[] =>
    figures.slice(1).map((figure) => (figure / (figures[0] ?? 1)).toFixed(2));
  const rows = plain.redis.map(({ test }, index) => {
    const each = runs.map(({ redis }) => redis[index]);
    const rates = each.map((figures) => figures?.requestsPerSecond ?? 0);
    const times = (of: 'p50Ms' | 'p99Ms'): string => each.map((figures) => (figures?.[of] ?? 0).toFixed(2)).join(' / ');
    return [
      `redis ${test}`,
      ...rates.map((rate) => `${rate.toFixed(0)}/s`),
      ...ratios(rates),
      times('p50Ms'),
      times('p99Ms'),
    ];
  });
  const rates = runs.map(({ transfer }) => transfer.bytesPerSecond);
  const transfer = ['transfer', ...rates.map(rateText), ...ratios(rates), '', ''];
  const header = [
    '',
    'plain TCP',
    'carried',
    'direct',
    'carried/plain',
    'direct/plain',
    'p50 ms of each',
    'p99 ms of each',
  ];
  return table(header, [...rows, transfer], ['left', ...header.slice(1).map(() => 'right' as const)]);
}

function carriedLines({ peers, verdicts, counters, direct }: DaemonStatus): readonly string[] {
  const links = peers.flatMap((peer) => peer.links.map((link) => ({ peer: peer.name, ...link })));
  const bytes = `${bytesText(counters.bytesOut)} sent, ${bytesText(counters.bytesIn)} received`;
  return [
    `${verdicts.carried ?? 0} connections were steered by connect and carried, ${direct.promoted} became direct: ${bytes}; the sha256 of every transfer is right`,
    ...links.map(({ peer, wire, inPlace, recordsOut, recordsIn, posts }) => {
      const where = inPlace ? ', written directly into its memory' : '';
      return `link to ${peer}: wire ${wire}${where}; ${recordsOut} records sent, ${recordsIn} received, ${posts} posts`;
    }),
  ];
}

function hints(lab: string, pair: CarriedPair, server: Host): readonly string[] {
  const socket = `--socket ${pair.client.socketPath}`;
  return [
    `./millrace lab exec --lab ${lab} client -- redis-cli -h ${server.ipv4} ping   # run a program of your own in a host`,
    `./millrace conn ${socket}   # each connection, how it is carried, and why`,
    `./millrace peer ${socket}   # the other daemon, and the link to it`,
    `./millrace top ${socket}    # live rates`,
  ];
}

function positive(text: string): number {
  const value = Number(text);
  if (Number.isSafeInteger(value) && value > 0) return value;
  throw new InvalidArgumentError('Give a positive whole number.');
}
