// The command line as a function: arguments and a world in, an exit code out. Never calls process.exit.

import { Command, CommanderError } from 'commander';
import { packageVersion } from '../version.ts';
import type { AddCommand } from './command.ts';
import { exitCode, exitCodeOf } from './exit-code.ts';
import { painter } from './paint.ts';
import type { World } from './world.ts';

interface CommandSource {
  /** The commands that it adds. */
  readonly names: readonly string[];
  readonly load: () => Promise<AddCommand>;
}

/** In the order of the help. */
const commands: readonly CommandSource[] = [
  { names: ['demo'], load: async () => (await import('./demo.ts')).addDemo },
  { names: ['up'], load: async () => (await import('./up.ts')).addUp },
  { names: ['doctor'], load: async () => (await import('./doctor.ts')).addDoctor },
  { names: ['dev'], load: async () => (await import('./dev.ts')).addDev },
  { names: ['perf'], load: async () => (await import('./perf.ts')).addPerf },
  { names: ['send'], load: async () => (await import('./send.ts')).addSend },
  { names: ['recv'], load: async () => (await import('./recv.ts')).addRecv },
  { names: ['backend'], load: async () => (await import('./backend.ts')).addBackend },
  { names: ['guest'], load: async () => (await import('./guest.ts')).addGuest },
  { names: ['replay'], load: async () => (await import('./replay.ts')).addReplay },
  { names: ['relay'], load: async () => (await import('./relay.ts')).addRelay },
  { names: ['lab'], load: async () => (await import('./lab.ts')).addLab },
  { names: ['steer'], load: async () => (await import('./steer.ts')).addSteer },
  { names: ['config'], load: async () => (await import('./config.ts')).addConfig },
  { names: ['conn'], load: async () => (await import('./conn.ts')).addConn },
  { names: ['explain', 'reload'], load: async () => (await import('./explain.ts')).addExplain },
  { names: ['peer'], load: async () => (await import('./peer.ts')).addPeer },
  { names: ['top'], load: async () => (await import('./top.ts')).addTop },
  { names: ['bench'], load: async () => (await import('./bench.ts')).addBench },
  { names: ['soak'], load: async () => (await import('./soak.ts')).addSoak },
];

/** Only the command that is asked for: all of them take several times as long to load. Help, and what is misspelt, take all. */
async function load(name: string | undefined): Promise<readonly AddCommand[]> {
  const wanted = commands.filter(({ names }) => names.some((each) => each === name));
  return Promise.all((wanted.length === 0 ? commands : wanted).map((source) => source.load()));
}

export async function run(args: readonly string[], world: World): Promise<number> {
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
  for (const add of await load(args[0])) add(program, { world, finish });
  try {
    await program.parseAsync([...args], { from: 'user' });
    return code;
  } catch (error) {
    // --help and --version arrive here too, with exit code 0; commander has printed everything already.
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
