// `millrace steer`: puts steering into the kernel and takes it out, shows it, and says why a
// connection went where it went.

import { readFileSync } from 'node:fs';
import { Option } from 'commander';
import { MillraceError, UsageError } from '../errors.ts';
import {
  type Connection,
  type Explanation,
  explainConnection,
  formatIpEndpoint,
  formatRule,
  isMeant,
  listInstances,
  parseIpEndpoint,
  parseRule,
  parseRules,
  removeInstance,
  ruleOf,
  Steering,
  SteeringView,
  type SteerRule,
  sweepInstances,
  verdictName,
  verdictWords,
  type Which,
} from '../steering/index.ts';
import { DEFAULT_INSTANCE } from '../system/index.ts';
import type { AddCommand } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { painter, table } from './paint.ts';
import { instanceToRemove, instanceToShow, refuseServed } from './steer-instance.ts';
import type { World } from './world.ts';

interface UpOptions {
  readonly instance: string;
  readonly cgroup: string;
  readonly rules?: string;
  readonly rule?: readonly SteerRule[];
}

interface ExplainOptions {
  readonly instance?: string;
  readonly json?: true;
}

interface ShowOptions {
  readonly recent: string;
  readonly json?: true;
}

const examples = `
Examples:
  millrace steer up --cgroup /demo --rule 'shortcut to any'   two programs of this host, past TCP
  millrace steer show                                         what there is
  millrace steer explain 4711                                 why the connections of a process go where they go
  millrace steer explain '10.0.0.1:40312->10.0.0.2:6379'
  millrace steer down

A rule: ACTION [to NET[:PORTS]] [from NET[:PORTS]] [cgroup PATH] [command NAME] [redirect]
  ACTION is connect (carried by the daemon), shortcut or pass; the first rule that matches decides.`;

export const addSteer: AddCommand = (program, { world, finish }) => {
  const steer = program
    .command('steer')
    .description('Decide in the kernel whose connections are carried; see why one is or is not.')
    .addHelpText('after', examples);
  steer
    .command('up')
    .description('Attach steering to a cgroup; it stays until it is taken down. What needs a daemon waits for one.')
    .option('--instance <name>', 'its name', DEFAULT_INSTANCE)
    .option('--cgroup <path>', 'programs in this cgroup and below are steered', '/')
    .addOption(new Option('--rules <file>', 'one rule a line').conflicts('rule'))
    .option('--rule <line>', 'a rule; may come several times', collectRule)
    .action((options: UpOptions) => finish(async () => up(options, world)));
  steer
    .command('down')
    .description('Detach steering; connections that are open stay as they are.')
    .argument('[instance]', 'its name (default: the only one that no daemon serves)')
    .action((instance: string | undefined) => finish(async () => down(instance, world)));
  steer
    .command('show')
    .description('What is steered, by which rules, and what became of the last connects.')
    .argument('[instance]', 'only this one, in full')
    .option('--recent <count>', 'how many of the last connects', '10')
    .option('--json', 'for programs')
    .action((instance: string | undefined, options: ShowOptions) => finish(async () => show(instance, options, world)));
  steer
    .command('explain')
    .description('Why a connection is or is not carried: every check, and the one that decided.')
    .argument('<connection>', 'a process id, or ADDR:PORT->ADDR:PORT')
    .option('--instance <name>', 'its name (default: the one that a daemon serves, or the only one)')
    .option('--json', 'for programs')
    .action((words: string, options: ExplainOptions) => finish(async () => explain(words, options, world)));
};

/** For an option that may come several times. */
function collectRule(text: string, before: readonly SteerRule[] | undefined): readonly SteerRule[] {
  return [...(before ?? []), parseRule(text)];
}

function up({ instance, cgroup, rules: file, rule }: UpOptions, world: World): ExitCode {
  if (rule === undefined && file === undefined) {
    throw new UsageError("steer up: no rules; give --rule 'connect to any' or --rules FILE");
  }
  const rules = rule ?? parseRules(readText(file ?? ''));
  refuseServed(instance, listInstances());
  sweepInstances();
  const steering = Steering.create({ instance, cgroup, rules }, false);
  world.stderr.write(`steering ${steering.cgroup} by ${rules.length} rules, as ${instance}\n`);
  steering.leave();
  return exitCode.ok;
}

function readText(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`read rules from ${file}: ${(error as NodeJS.ErrnoException).code}`, { cause: error });
  }
}

function down(named: string | undefined, world: World): ExitCode {
  const instance = named ?? instanceToRemove(listInstances());
  if (!removeInstance(instance)) {
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `there is no steering called ${instance}`);
  }
  world.stderr.write(`steering ${instance} is gone\n`);
  return exitCode.ok;
}

function show(instance: string | undefined, options: ShowOptions, world: World): ExitCode {
  const count = Number(options.recent);
  if (!Number.isInteger(count) || count < 0)
    throw new UsageError(`--recent ${options.recent}: expected a whole number`);
  const instances = listInstances();
  const names = instance === undefined ? instances.map(({ name }) => name) : [instance];
  const shown = names.map((name) => describe(name, count));
  if (options.json === true) {
    world.stdout.write(`${JSON.stringify({ v: 1, instances: shown })}\n`);
    return exitCode.ok;
  }
  if (shown.length === 0) world.stderr.write('nothing is steered here\n');
  for (const one of shown) world.stdout.write(`${textOf(one, world)}\n`);
  return exitCode.ok;
}

interface Shown {
  readonly name: string;
  readonly daemon: string;
  readonly isServed: boolean;
  readonly rules: readonly string[];
  readonly announced: readonly string[];
  readonly counters: Readonly<Record<string, number>>;
  readonly recent: readonly ReturnType<typeof rowOf>[];
}

function describe(name: string, recent: number): Shown {
  using view = new SteeringView(name);
  const { rules, count } = view.rules;
  return {
    name,
    daemon: listInstances().find((one) => one.name === name)?.daemon ?? 'none',
    isServed: view.isServed,
    rules: rules.slice(0, count).map((rule) => formatRule(ruleOf(rule))),
    announced: view.announced.map(formatIpEndpoint).sort(),
    counters: view.counters,
    recent: view.recent.slice(0, recent).map(rowOf),
  };
}

function rowOf(connection: Connection) {
  return {
    pid: connection.pid,
    command: connection.command,
    // Not chosen yet, or never: the connect failed before.
    source: connection.source.port === 0 ? '-' : formatIpEndpoint(connection.source),
    destination: formatIpEndpoint(connection.original),
    verdict: verdictName(connection.verdict),
  };
}

function textOf(shown: Shown, world: World): string {
  const paint = painter(world.stdout, world.env);
  const lines = [
    `${paint('bold', shown.name)}  ${shown.isServed ? 'served by a daemon' : `no daemon serves it (${shown.daemon})`}`,
  ];
  lines.push('  rules', ...shown.rules.map((rule, index) => `    ${index + 1}  ${rule}`));
  if (shown.announced.length > 0) lines.push('  announced', `    ${shown.announced.join('  ')}`);
  const counts = Object.entries(shown.counters).filter(([, count]) => count > 0);
  lines.push('  connects', `    ${counts.map(([verdict, count]) => `${verdict} ${count}`).join('  ') || 'none yet'}`);
  if (shown.recent.length > 0) {
    const rows = shown.recent.map((row) => [String(row.pid), row.command, row.source, row.destination, row.verdict]);
    lines.push(
      '  last connects',
      ...table(['pid', 'command', 'from', 'to', 'verdict'], rows).map((line) => `    ${line}`),
    );
  }
  return lines.join('\n');
}

function explain(words: string, { instance: named, json }: ExplainOptions, world: World): ExitCode {
  const which = whichOf(words);
  const instance = named ?? instanceToShow(listInstances());
  using view = new SteeringView(instance);
  const rules = view.rules;
  const found = view.recent.filter((connection) => isMeant(connection, which));
  if (found.length === 0) {
    throw new MillraceError(
      'MILLRACE_ERR_NOT_RUNNING',
      `${instance} saw no such connect: the process is outside its cgroup, the connect was before the steering, or thousands of others came since`,
    );
  }
  const explanations = found.map((connection) => explainConnection(connection, rules));
  if (json === true) {
    const told = explanations.map(({ connection, verdict, checks }) => ({ ...rowOf(connection), verdict, checks }));
    world.stdout.write(`${JSON.stringify({ v: 1, connections: told })}\n`);
  } else {
    for (const explanation of explanations) world.stdout.write(`${explanationText(explanation, world)}\n`);
  }
  return exitCode.ok;
}

function whichOf(words: string): Which {
  if (/^\d{1,9}$/.test(words)) return { pid: Number(words) };
  const [source, destination, ...rest] = words.split('->');
  if (source === undefined || destination === undefined || rest.length > 0) {
    throw new UsageError(`'${words}' is neither a process id nor two ends, as 10.0.0.1:40312->10.0.0.2:6379`);
  }
  return {
    source: formatIpEndpoint(parseIpEndpoint(source.trim())),
    destination: formatIpEndpoint(parseIpEndpoint(destination.trim())),
  };
}

function explanationText({ connection, verdict, checks }: Explanation, world: World): string {
  const paint = painter(world.stdout, world.env);
  const { pid, command, source, destination } = rowOf(connection);
  const lines = checks.map(
    ({ question, answer, isDecisive }) => `  ${isDecisive ? paint('bold', '=>') : '  '} ${question} ${answer}`,
  );
  return [`${command} (${pid})  ${source} -> ${destination}: ${verdictWords[verdict]}`, ...lines].join('\n');
}
