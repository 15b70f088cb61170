// `millrace lab exec`: runs a program in a lab host, with the streams and signals of this process.

import type { ChildProcess, StdioOptions } from 'node:child_process';
import { constants } from 'node:os';
import type { Command } from 'commander';
import { UsageError } from '../errors.ts';
import { defaultRunDir, findLab, findProgram, Host, listLabs } from '../lab/index.ts';
import type { CommandContext } from './command.ts';
import type { World } from './world.ts';

/** The exit status that shells use. */
const notFoundStatus = 127;

export function addExec(lab: Command, { world, finish }: CommandContext): void {
  lab
    .command('exec')
    .description('Run a program in a lab host. The exit status is the program’s.')
    .usage('[options] <host> -- <command> [arguments...]')
    .option('--lab <name>', 'name or id of the lab; not needed while there is only one')
    .argument('<host>', 'a host of the lab')
    .argument('<command...>', 'the program and its arguments')
    .passThroughOptions()
    .action((host: string, words: readonly string[], options: { readonly lab?: string }) =>
      finish(() => execute(host, words, options.lab, world)),
    );
}

async function execute(
  hostName: string,
  rawWords: readonly string[],
  label: string | undefined,
  world: World,
): Promise<number> {
  const { record } = findLab(listLabs(runDirOf(world)).labs, label);
  const host = new Host(record, hostName);
  const [command, ...args] = rawWords[0] === '--' ? rawWords.slice(1) : rawWords;
  if (command === undefined) throw new UsageError(`lab exec ${hostName}: there is no command; give it after --`);
  const env = { ...world.env };
  if (findProgram(command, env.PATH) === null) {
    world.stderr.write(`millrace: run ${command} in host ${hostName}: no such program\n`);
    return notFoundStatus;
  }
  const child = host.spawn(command, args, { env, stdio: stdioOf(world) });
  connectStreams(child, world);
  return statusOf(child, world);
}

/** The streams of this process are inherited, terminals included; those of a test are copied. */
function stdioOf(world: World): StdioOptions {
  return [
    world.stdin === process.stdin ? 'inherit' : 'pipe',
    world.stdout === process.stdout ? 'inherit' : 'pipe',
    world.stderr === process.stderr ? 'inherit' : 'pipe',
  ];
}

function connectStreams(child: ChildProcess, world: World): void {
  if (child.stdin !== null) {
    // The program need not read all of its input.
    child.stdin.on('error', () => {});
    world.stdin.pipe(child.stdin);
  }
  child.stdout?.pipe(world.stdout, { end: false });
  child.stderr?.pipe(world.stderr, { end: false });
}

async function statusOf(child: ChildProcess, world: World): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<number>();
  const forward = (): void => {
    const name = /SIG[A-Z]+/.exec(String(world.signal.reason))?.[0] ?? 'SIGTERM';
    // A terminal sends Ctrl-C to the program as well, so it is not forwarded.
    if (name === 'SIGINT' && process.stdin.isTTY && world.stdin === process.stdin) return;
    child.kill(name as NodeJS.Signals);
  };
  child.on('error', reject);
  child.on('close', (code, signal) => resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal])));
  world.signal.addEventListener('abort', forward, { once: true });
  if (world.signal.aborted) forward();
  try {
    return await promise;
  } finally {
    world.signal.removeEventListener('abort', forward);
    if (child.stdin !== null) world.stdin.unpipe(child.stdin);
  }
}

/** The folder of the labs' records; tests and users of one machine may each have their own. */
export function runDirOf(world: World): string {
  const dir = world.env.MILLRACE_RUN_DIR;
  return dir === undefined || dir === '' ? defaultRunDir : dir;
}
