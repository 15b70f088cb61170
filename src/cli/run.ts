// The command line as a function: arguments and a world in, an exit code out. Never calls process.exit.

import { Command, CommanderError } from 'commander';
import { packageVersion } from '../version.ts';
import { addBackend } from './backend.ts';
import { addBench } from './bench.ts';
import type { AddCommand } from './command.ts';
import { addConfig } from './config.ts';
import { addConn } from './conn.ts';
import { addDemo } from './demo.ts';
import { addDev } from './dev.ts';
import { addDoctor } from './doctor.ts';
import { exitCode, exitCodeOf } from './exit-code.ts';
import { addExplain } from './explain.ts';
import { addGuest } from './guest.ts';
import { addLab } from './lab.ts';
import { painter } from './paint.ts';
import { addPeer } from './peer.ts';
import { addPerf } from './perf.ts';
import { addRecv } from './recv.ts';
import { addRelay } from './relay.ts';
import { addReplay } from './replay.ts';
import { addSend } from './send.ts';
import { addSoak } from './soak.ts';
import { addSteer } from './steer.ts';
import { addTop } from './top.ts';
import { addUp } from './up.ts';
import type { World } from './world.ts';

const commands: readonly AddCommand[] = [
  addDemo,
  addUp,
  addDoctor,
  addDev,
  addPerf,
  addSend,
  addRecv,
  addBackend,
  addGuest,
  addReplay,
  addRelay,
  addLab,
  addSteer,
  addConfig,
  addConn,
  addExplain,
  addPeer,
  addTop,
  addBench,
  addSoak,
];

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
  for (const add of commands) add(program, { world, finish });
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
