// Child processes of a row that answer each message with a figure.

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { MillraceError } from '../../src/errors.ts';

const STOP_MS = 2000;

/** The next figure that the process sends; its end is an error. */
export async function figureOf(child: ChildProcess, signal: AbortSignal): Promise<number> {
  const over = new AbortController();
  const ended = once(child, 'exit', { signal: over.signal }).then(() => {
    throw new MillraceError('MILLRACE_ERR_FAILED', 'measure a benchmark: one of its processes has ended');
  });
  ended.catch(() => {});
  try {
    const [answer] = await Promise.race([once(child, 'message', { signal }), ended]);
    return Number((answer as { figure: number }).figure);
  } finally {
    over.abort();
  }
}

/** Such processes end when they are disconnected; one that does not is killed. */
export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exited = once(child, 'exit');
  if (child.connected) child.disconnect();
  const force = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await exited;
  clearTimeout(force);
}
