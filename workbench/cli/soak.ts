// `millrace soak`, which is `npm run soak`: hundreds of connections under planned faults, and a
// table of how they ended.

import { InvalidArgumentError, Option } from 'commander';
import type { AddCommand, World } from '../../src/cli/index.ts';
import { bytesText, type ExitCode, exitCode, painter, table } from '../../src/cli/index.ts';
import { behaviours, type Fault, type PhaseReport, soak, timeText, type Wire } from '../soak/index.ts';

interface Options {
  readonly seed?: number;
  readonly seconds: number;
  readonly connections: number;
  readonly wire?: Wire;
  readonly direct?: boolean;
  readonly json?: boolean;
}

const allWires: readonly Wire[] = ['shm', 'roce', 'tcp'];
const directWires: readonly Wire[] = ['shm', 'tcp'];
const MOST_SEED = 4_294_967_295;
const SHOWN_FAILURES = 20;

const about = `
Every connection must end exactly, to the last byte, or with a reset while a daemon on its path was dead. Afterwards no
daemon may hold a stream, a descriptor or a byte more than before. The same seed gives the same faults in the same order.

Examples:
  millrace soak --seconds 30
  millrace soak --direct
  millrace soak --wire roce --seed 4711 --json`;

export const addSoak: AddCommand = (program, { world, finish }) => {
  program
    .command('soak')
    .description('run many connections of all behaviours between two lab hosts while everything between them breaks')
    .option('--seed <n>', 'random seed of the faults and the traffic (default: a new one)', seedOf)
    .option('--seconds <n>', 'duration over all wires', within(1, 86_400), 180)
    .option('--connections <n>', 'connections at once, from both hosts together', within(2, 2000), 200)
    .addOption(
      new Option('--wire <wire>', 'run on this wire only (default: all, one after the other)').choices(allWires),
    )
    .option('--direct', 'connections are direct, and no fault may break one; programs are paused and killed as well')
    .option('--json', 'print the report as one JSON document')
    .addHelpText('after', about)
    .action((options: Options) => finish(() => runSoak(options, world)));
};

async function runSoak(options: Options, world: World): Promise<ExitCode> {
  const { seconds, connections, wire, direct: isDirect = false } = options;
  const seed = options.seed ?? Math.floor(Math.random() * MOST_SEED);
  const paint = painter(world.stderr, world.env);
  const say = (text: string): void => void world.stderr.write(`${text}\n`);
  const wires = wire !== undefined ? [wire] : isDirect ? directWires : allWires;
  say(paint('bold', `${connections} connections for ${seconds} s over ${wires.join(', ')}; seed ${seed}`));
  const report = await soak({
    seed,
    seconds,
    connections: connections + (connections % 2),
    wires,
    isDirect,
    signal: world.signal,
    onPhase: (next) => say(paint('bold', `wire ${next}`)),
    onFault: (fault) => say(`  ${faultText(fault)}`),
  });
  if (options.json) world.stdout.write(`${JSON.stringify(report)}\n`);
  else for (const phase of report.phases) for (const line of phaseLines(phase)) world.stdout.write(`${line}\n`);
  const count = report.phases.reduce((sum, { failures }) => sum + failures.length, 0);
  say(
    report.isOk ? paint('green', 'everything held') : paint('red', `${count} failures; run again with --seed ${seed}`),
  );
  return report.isOk ? exitCode.ok : exitCode.failed;
}

function faultText({ kind, host, startMs, endMs }: Fault): string {
  return `${timeText(startMs)}  ${kind.padEnd(18)}  ${host.padEnd(5)}  ${((endMs - startMs) / 1000).toFixed(1)} s`;
}

function phaseLines(phase: PhaseReport): readonly string[] {
  const { wire, seconds, faults, traffic, daemons, carried, promoted, recoveries, failures } = phase;
  const rows = [...behaviours, 'unknown' as const].map((behaviour) => {
    const { exact, reset, wrong, stuck, failed, bytes } = traffic[behaviour];
    return [behaviour, ...[exact, reset, wrong, stuck + failed].map(String), bytesText(bytes)];
  });
  const header = ['ends of connections', 'exact', 'reset', 'wrong', 'stuck', 'bytes checked'];
  const held = daemons.map(({ before, after }) => [
    `daemon ${after.host}`,
    String(after.connections),
    String(after.slotsUsed),
    bytesText(after.heldBytes),
    `${before.fds} / ${after.fds}`,
    `${bytesText(before.rssBytes)} / ${bytesText(after.rssBytes)}`,
  ]);
  const heldHeader = ['left at the end', 'streams', 'slots', 'held', 'fds before / after', 'memory before / after'];
  return [
    `${wire}: ${faults.length} faults in ${seconds.toFixed(0)} s; the last daemons carried ${carried} connections, promoted ${promoted} ends and recovered ${recoveries} times`,
    '',
    ...table(header, rows, ['left', 'right', 'right', 'right', 'right', 'right']),
    '',
    ...table(heldHeader, held, ['left', 'right', 'right', 'right', 'right', 'right']),
    '',
    ...failures.slice(0, SHOWN_FAILURES).map((text) => `✖ ${text}`),
    ...(failures.length > SHOWN_FAILURES ? [`✖ and ${failures.length - SHOWN_FAILURES} more`] : []),
  ];
}

function within(first: number, last: number): (text: string) => number {
  return (text) => {
    const value = Number(text);
    if (Number.isSafeInteger(value) && value >= first && value <= last) return value;
    throw new InvalidArgumentError(`expected a whole number from ${first} to ${last}`);
  };
}

const seedOf = within(0, MOST_SEED);
