// The real world: this process's streams, environment, clock and signals.

import { run } from './run.ts';

/** The first signal asks the command to unwind; a second one of the same kind ends the process as usual. */
function abortOnSignals(isDaemon: boolean): AbortSignal {
  const controller = new AbortController();
  // A daemon reads its config again instead.
  for (const name of ['SIGINT', 'SIGTERM', ...(isDaemon ? [] : (['SIGHUP'] as const))] as const) {
    process.once(name, () => controller.abort(new DOMException(`stopped by ${name}`, 'AbortError')));
  }
  return controller.signal;
}

export async function main(args: readonly string[]): Promise<number> {
  // A reader that went away (`millrace … | head`) is no error.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') process.exit(0);
    throw error;
  });
  return run(args, {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    signal: abortOnSignals(args[0] === 'up'),
    nowMs: () => performance.now(),
  });
}
