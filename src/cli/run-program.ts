// `millrace run`: starts a program whose TCP connections may become direct.

import { directEnvironment, directLibrary, findDirectSocket, whyNotLoaded } from '../direct/launch/index.ts';
import { UsageError } from '../errors.ts';
import { findProgram } from '../lab/index.ts';
import { becomeProgram } from '../native/index.ts';
import type { AddCommand } from './command.ts';
import { inheritedFds, startedWith, stdioFlags, wordsAsGiven } from './start/index.ts';
import type { World } from './world.ts';

/** The exit codes of shells. */
const notFound = 127;
const notExecutable = 126;

const examples = `
The program takes the place of millrace: process id, terminal, signals and exit
status are its own. Connections become direct when the program at the other end
was started the same way and a daemon runs; otherwise they are plain TCP.
MILLRACE_DIRECT=verbose in the environment makes it tell why not.

Examples:
  millrace run redis-server --port 6379
  millrace run -- redis-benchmark -p 6379
  MILLRACE_DIRECT=verbose millrace run curl http://127.0.0.1:8000/`;

export const addRun: AddCommand = (program, { world, finish }) => {
  program
    .command('run')
    .description('Run a program whose TCP connections to other such programs become direct.')
    .usage('[options] [--] <program> [arguments...]')
    .option('--instance <name>', 'instance name of the daemon (default: the only one that runs here)')
    .argument('<program...>', 'the program and its arguments')
    .passThroughOptions()
    .addHelpText('after', examples)
    .action((words: readonly string[], options: { readonly instance?: string }) =>
      finish(() => runProgram(words, options.instance, world)),
    );
};

async function runProgram(rawWords: readonly string[], instance: string | undefined, world: World): Promise<number> {
  const words = rawWords[0] === '--' ? rawWords.slice(1) : rawWords;
  const [program] = words;
  if (program === undefined || program === '') throw new UsageError('run: there is no program; give it after --');
  const { env } = world;
  const changes = directEnvironment(env, directLibrary(), findDirectSocket(instance, env));
  const path = findProgram(program, env.PATH);
  const whyNot = env.MILLRACE_DIRECT === 'verbose' && path !== null ? whyNotLoaded(path) : undefined;
  if (whyNot !== undefined) await say(`${whyNot}, so its connections are plain TCP`, world);
  const { code } = becomeProgram(
    wordsAsGiven(words),
    { ...changes, MILLRACE_START: undefined },
    { ...startedWith(env), descriptors: inheritedFds(), stdioFlags },
  );
  const isMissing = code === 'ENOENT' && path !== null;
  const why = isMissing ? 'the interpreter that it names does not exist' : (reasons[code] ?? code);
  await say(`run ${program}: ${why}`, world);
  return code === 'ENOENT' ? notFound : notExecutable;
}

const reasons: Readonly<Record<string, string>> = {
  ENOENT: 'no such program; see whether it is installed and PATH has its folder',
  EACCES: 'it may not be executed; see its permissions and those of its folders',
};

/** Resolves when it is written: what is only queued would be lost with this process. */
function say(text: string, { stderr }: World): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  stderr.write(`millrace: ${text}\n`, () => resolve());
  return promise;
}
