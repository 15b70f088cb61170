// A lock between processes that is released whenever its holder ends: flock(1) holds it while a
// pipe is open.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { MillraceError } from '../../errors.ts';
import { requireTool } from '../index.ts';

/** `cat` ends when this process closes the pipe, or dies. */
const holder = ['sh', '-c', 'echo locked; exec cat'] as const;

/** Waits until the lock is free. */
export async function lockFile(path: string, signal?: AbortSignal): Promise<AsyncDisposable> {
  signal?.throwIfAborted();
  const child = spawn(requireTool('flock', 'util-linux'), ['--exclusive', path, ...holder], {
    stdio: ['pipe', 'pipe', 'pipe'],
    // Detached, because Ctrl-C is for this process, which then releases the lock in order.
    detached: true,
  });
  const ended = once(child, 'close');
  const release = async (): Promise<void> => {
    child.stdin.destroy();
    await ended;
  };
  const onAbort = (): void => void child.kill('SIGKILL');
  signal?.addEventListener('abort', onAbort, { once: true });
  try {
    let complaint = '';
    child.stderr.on('data', (chunk: Buffer) => {
      complaint += chunk.toString();
    });
    const first = await Promise.race([once(child.stdout, 'data').then(() => 'locked'), ended.then(() => 'ended')]);
    signal?.throwIfAborted();
    if (first === 'ended') throw new MillraceError('MILLRACE_ERR_FAILED', `lock ${path}: ${complaint.trim()}`);
  } catch (error) {
    await release();
    throw error;
  } finally {
    signal?.removeEventListener('abort', onAbort);
  }
  return { [Symbol.asyncDispose]: release };
}
