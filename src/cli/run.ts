// The command line as a function: arguments and a world in, an exit code out. Never calls
// process.exit.

import { Command, CommanderError } from 'commander';
import { packageVersion } from '../system/index.ts';
import type { AddCommand } from './command.ts';
import { type CommandSource, commands as shipped } from './commands.ts';
import { exitCode, exitCodeOf } from './exit-code.ts';
import { painter } from './paint.ts';
import type { World } from './world.ts';

/**
 * Loads only the command that is used, which is several times faster; help and misspelt commands
 * load all.
 */
async function load(name: string | undefined, commands: readonly CommandSource[]): Promise<readonly AddCommand[]> {
  const wanted = commands.filter(({ names }) => names.some((each) => each === name));
  return Promise.all((wanted.length === 0 ? commands : wanted).map((source) => source.load()));
}

export async function run(
  args: readonly string[],
  world: World,
  commands: readonly CommandSource[] = shipped,
): Promise<number> {
  let code: number = exitCode.ok;
  const program = new Command('millrace')
    .description('Carries TCP traffic, streams and verbs over RDMA.')
    .version(packageVersion(), '-V, --version')
    .showHelpAfterError('(add --help for the options)')
    .showSuggestionAfterError(true)
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => void world.stdout.write(text),
      writeErr: (text) => void world.stderr.write(text),
      getOutHasColors: () => false,
      getErrHasColors: () => false,
    });
  const finish = async (action: () => Promise<number>): Promise<void> => {
    code = await action();
  };
  for (const add of await load(args[0], commands)) add(program, { world, finish });
  try {
    await program.parseAsync([...args], { from: 'user' });
    return code;
  } catch (error) {
    // --help and --version also arrive here, with exit code 0; commander has printed everything
    // already.
    if (error instanceof CommanderError) return error.exitCode === 0 ? exitCode.ok : exitCode.usage;
    if (world.signal.aborted && isAbort(error)) return exitCode.interrupted;
    reportError(error, world);
    return exitCodeOf(error);
  }
}

function isAbort(error: unknown): boolean {
  return error instanceof Error && error.name === 'AbortError';
}

function reportError(error: unknown, world: World): void {
  const paint = painter(world.stderr, world.env);
  const message = error instanceof Error ? error.message : String(error);
  world.stderr.write(`${paint('red', 'millrace:')} ${message}\n`);
  if (world.env.MILLRACE_DEBUG !== undefined && error instanceof Error) world.stderr.write(`${error.stack}\n`);
}
