// The real world: this process's streams, environment, clock, signals, and who reads what it prints.

import { type CommandSource, commands as shipped } from './commands.ts';
import { exitCode } from './exit-code.ts';
import { run } from './run.ts';

/** Of writing to a pipe that was closed, or to a terminal that is gone. */
const readerGone = new Set(['EPIPE', 'EIO']);

/** The first signal asks the command to unwind; a second one of the same kind ends the process as usual. */
function abortOnSignals(controller: AbortController, isDaemon: boolean): void {
  // A daemon reads its config again instead.
  for (const name of ['SIGINT', 'SIGTERM', ...(isDaemon ? [] : (['SIGHUP'] as const))] as const) {
    process.once(name, () => controller.abort(new DOMException(`stopped by ${name}`, 'AbortError')));
  }
}

/** Node ignores SIGPIPE: without this, the next line that is printed would end the process, and leave what it has made. */
function onReaderGone(stream: NodeJS.WriteStream, then: () => void): void {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (!readerGone.has(error.code ?? '')) throw error;
    then();
  });
}

export async function main(args: readonly string[], commands: readonly CommandSource[] = shipped): Promise<number> {
  const isDaemon = args[0] === 'up';
  const controller = new AbortController();
  abortOnSignals(controller, isDaemon);
  // What is read by nobody is worth no more work, but for a daemon, which does not work for its reader.
  const stop = (): void => {
    if (!isDaemon) controller.abort(new DOMException('nobody reads what it prints', 'AbortError'));
  };
  let hasReader = true;
  onReaderGone(process.stderr, stop);
  onReaderGone(process.stdout, () => {
    hasReader = false;
    stop();
  });
  const world = {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    signal: controller.signal,
    nowMs: () => performance.now(),
  };
  const code = await run(args, world, commands);
  // A reader that has seen enough (`millrace … | head`) is no error.
  return !hasReader && code === exitCode.interrupted ? exitCode.ok : code;
}
