// Runs the command line in the real world: the streams, environment, clock and signals of this
// process.

import { type CommandSource, commands as shipped } from './commands.ts';
import { exitCode } from './exit-code.ts';
import { run } from './run.ts';

/** Error codes of a write to a closed pipe or a lost terminal. */
const readerGone = new Set(['EPIPE', 'EIO']);

/**
 * The first signal asks the command to unwind; a second one of the same kind ends the process as
 * usual.
 */
function abortOnSignals(controller: AbortController, isDaemon: boolean): void {
  // A daemon takes SIGHUP as a request to read its config again.
  for (const name of ['SIGINT', 'SIGTERM', ...(isDaemon ? [] : (['SIGHUP'] as const))] as const) {
    process.once(name, () => controller.abort(new DOMException(`stopped by ${name}`, 'AbortError')));
  }
}

/**
 * Node ignores SIGPIPE: without this, the next write would end the process before it has cleaned
 * up.
 */
function onReaderGone(stream: NodeJS.WriteStream, then: () => void): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (!readerGone.has(error.code ?? '')) throw error;
    then();
  });
}

export async function main(args: readonly string[], commands: readonly CommandSource[] = shipped): Promise<number> {
  const isDaemon = args[0] === 'up';
  const controller = new AbortController();
  let hasReader = true;
  // `run` becomes another program: a signal meanwhile ends it, and streams are left as they are.
  if (args[0] !== 'run') {
    abortOnSignals(controller, isDaemon);
    // A command whose output nobody reads stops; a daemon goes on.
    const stop = (): void => {
      if (!isDaemon) controller.abort(new DOMException('the output was closed', 'AbortError'));
    };
    onReaderGone(process.stderr, stop);
    onReaderGone(process.stdout, () => {
      hasReader = false;
      stop();
    });
  }
  // Node makes a stream when it is first asked for it, and changes flags of the open file then.
  const world = {
    get stdin() {
      return process.stdin;
    },
    get stdout() {
      return process.stdout;
    },
    get stderr() {
      return process.stderr;
    },
    env: process.env,
    signal: controller.signal,
    nowMs: () => performance.now(),
  };
  const code = await run(args, world, commands);
  // A reader that stops early (`millrace … | head`) is not an error.
  return !hasReader && code === exitCode.interrupted ? exitCode.ok : code;
}
