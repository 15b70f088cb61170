// `millrace lab`: makes, lists and removes labs, and runs programs in their hosts.

import { type Command, InvalidArgumentError, Option } from 'commander';
import { UsageError } from '../errors.ts';
import {
  findLab,
  Host,
  hostLimits,
  type KnownLab,
  Lab,
  labelOf,
  listLabs,
  processCount,
  type RecordProblem,
  removeLab,
  sweep,
} from '../lab/index.ts';
import type { AddCommand, CommandContext } from './command.ts';
import { type ExitCode, exitCode } from './exit-code.ts';
import { addExec, runDirOf } from './lab-exec.ts';
import { addVm } from './lab-vm.ts';
import { painter, table } from './paint.ts';
import type { World } from './world.ts';

interface UpOptions {
  readonly name?: string;
  readonly hosts?: readonly string[];
  readonly count?: number;
  readonly mtu?: number;
  readonly delay?: number;
  readonly loss?: number;
  readonly json?: true;
}

interface DownOptions {
  readonly all?: true;
  readonly json?: true;
}

export const addLab: AddCommand = (program, context) => {
  const lab = program
    .command('lab')
    .description('Make hosts on this machine: namespaces with a network of their own, for demos, tests and benchmarks.')
    // Options after `exec HOST` belong to the program.
    .enablePositionalOptions();
  addUp(lab, context);
  addDown(lab, context);
  addShow(lab, context);
  addExec(lab, context);
  addVm(lab, context);
};

function addUp(lab: Command, { world, finish }: CommandContext): void {
  lab
    .command('up')
    .description('Make a lab. It stays until it is taken down.')
    .option('--name <name>', 'name of the lab, in addition to its id')
    .addOption(new Option('--hosts <names>', 'names of the hosts, as a,b,c').argParser(splitNames).conflicts('count'))
    .addOption(
      new Option('-n, --count <number>', `number of hosts, ${hostLimits.min} to ${hostLimits.max}`).argParser(numberOf),
    )
    .option('--mtu <bytes>', 'MTU of the network between the hosts', numberOf)
    .option('--delay <ms>', 'delay of each packet in each direction', numberOf)
    .option('--loss <percent>', 'share of lost packets in each direction', numberOf)
    .option('--json', 'print JSON, for programs')
    .action((options: UpOptions) => finish(() => up(options, world)));
}

function addDown(lab: Command, { world, finish }: CommandContext): void {
  lab
    .command('down')
    .description('Kill every program in a lab and remove it.')
    .argument('[name]', 'name or id of the lab; not needed while there is only one')
    .option('--all', 'remove every lab that no running program owns')
    .option('--json', 'print JSON, for programs')
    .action((name: string | undefined, options: DownOptions) => finish(() => down(name, options, world)));
}

function addShow(lab: Command, { world, finish }: CommandContext): void {
  lab
    .command('show')
    .description('List the labs of this machine and their hosts.')
    .option('--json', 'print JSON, for programs')
    .action((options: { readonly json?: true }) => finish(async () => show(options.json === true, world)));
}

async function up(options: UpOptions, world: World): Promise<ExitCode> {
  const hosts = options.hosts ?? options.count;
  const lab = await Lab.create({
    persistent: true,
    runDir: runDirOf(world),
    signal: world.signal,
    ...(hosts === undefined ? {} : { hosts }),
    ...(options.name === undefined ? {} : { name: options.name }),
    ...(options.mtu === undefined ? {} : { mtu: options.mtu }),
    ...(options.delay === undefined ? {} : { delayMs: options.delay }),
    ...(options.loss === undefined ? {} : { lossPercent: options.loss }),
  });
  for (const id of lab.swept.removed) world.stderr.write(`removed lab ${id}, whose owner has ended\n`);
  tellProblems(lab.swept.problems, world);
  const known: KnownLab = { record: lab.record, state: 'persistent' };
  if (options.json === true) return printJson(labJson(known), world);
  printHosts([known], world);
  const first = lab.hosts[0]?.name ?? '';
  world.stderr.write(`try: millrace lab exec --lab ${labelOf(lab.record)} ${first} -- ip addr\n`);
  return exitCode.ok;
}

async function down(name: string | undefined, options: DownOptions, world: World): Promise<ExitCode> {
  if (options.all === true && name !== undefined)
    throw new UsageError('lab down: a name and --all contradict each other; give one of them');
  const runDir = runDirOf(world);
  const { labs, problems } = listLabs(runDir);
  const chosen = options.all === true ? labs.filter(({ state }) => state === 'persistent') : [findLab(labs, name)];
  const removed: string[] = [];
  for (const { record, state } of chosen) {
    if (state === 'alive') {
      throw new UsageError(
        `lab ${labelOf(record)} belongs to the running process ${record.owner?.pid}; it is removed when that ends`,
      );
    }
    await removeLab(runDir, record);
    removed.push(record.id);
    world.stderr.write(`lab ${labelOf(record)} is down\n`);
  }
  if (options.all === true) {
    const swept = await sweep({ runDir, signal: world.signal });
    removed.push(...swept.removed);
    tellProblems(swept.problems, world);
  } else {
    tellProblems(problems, world);
  }
  return options.json === true ? printJson({ removed }, world) : exitCode.ok;
}

function show(isJson: boolean, world: World): ExitCode {
  const { labs, problems } = listLabs(runDirOf(world));
  tellProblems(problems, world);
  if (isJson) return printJson({ labs: labs.map(labJson), problems }, world);
  if (labs.length === 0) world.stderr.write('no lab is up; try: millrace lab up\n');
  else printHosts(labs, world);
  return exitCode.ok;
}

function labJson({ record, state }: KnownLab): object {
  const { owner, hosts, ...rest } = record;
  const hostJson = (name: string): object => {
    const { ipv4, ipv6, namespace, cgroup } = new Host(record, name);
    return { name, ipv4, ipv6, namespace, cgroup, processes: processCount(cgroup) };
  };
  return { ...rest, state, ownerPid: owner?.pid ?? null, hosts: hosts.map(hostJson) };
}

function printJson(value: object, world: World): ExitCode {
  world.stdout.write(`${JSON.stringify(value, null, 2)}\n`);
  return exitCode.ok;
}

function printHosts(labs: readonly KnownLab[], world: World): void {
  const paint = painter(world.stdout, world.env);
  const rows = labs.flatMap(({ record, state }) =>
    record.hosts.map((name) => {
      const { ipv4, ipv6, namespace, cgroup } = new Host(record, name);
      return [labelOf(record), state, name, ipv4, ipv6, String(record.mtu), String(processCount(cgroup)), namespace];
    }),
  );
  const header = ['LAB', 'STATE', 'HOST', 'IPV4', 'IPV6', 'MTU', 'PROCESSES', 'NAMESPACE'];
  const [title = '', ...lines] = table(header, rows, ['left', 'left', 'left', 'left', 'left', 'right', 'right']);
  world.stdout.write(`${[paint('bold', title), ...lines].join('\n')}\n`);
}

function tellProblems(problems: readonly RecordProblem[], world: World): void {
  for (const { file, reason } of problems) world.stderr.write(`not removed: ${file}: ${reason}\n`);
}

function splitNames(text: string): readonly string[] {
  return text.split(',').map((name) => name.trim());
}

function numberOf(text: string): number {
  const value = Number(text);
  if (text.trim() === '' || Number.isNaN(value)) throw new InvalidArgumentError('Give a number.');
  return value;
}
