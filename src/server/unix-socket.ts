// A unix socket under a well-known name: for its owner only, taken over from a dead process, never
// from a living one.

import { randomBytes } from 'node:crypto';
import { chmodSync, linkSync, lstatSync, rmSync } from 'node:fs';
import { connect, type Server } from 'node:net';
import { basename, dirname, join } from 'node:path';
import { MillraceError } from '../errors.ts';
import { makeRunFolder } from '../system/index.ts';

/** The size of a path in sockaddr_un, less the terminating zero. */
const MAX_PATH_BYTES = 107;
const MAX_TRIES = 5;

/** Listens. The returned function removes the name again, unless another process has it by then. */
export async function listenUnix(server: Server, path: string): Promise<() => void> {
  // The socket is made under a temporary name first, so that it has the right mode and listens when
  // it gets its own.
  const made = join(dirname(path), `.${token()}`);
  const longest = [made, lockOf(path)].find((name) => Buffer.byteLength(name) > MAX_PATH_BYTES);
  if (longest !== undefined) {
    throw new MillraceError(
      'MILLRACE_ERR_USAGE',
      `listen on ${path}: the path is too long for a unix socket; choose a shorter one`,
    );
  }
  makeRunFolder(dirname(path));
  await listening(server, made, path);
  try {
    chmodSync(made, 0o600);
    const { ino } = lstatSync(made);
    await publish(made, path);
    return () => {
      if (lstatSync(path, { throwIfNoEntry: false })?.ino === ino) rmSync(path, { force: true });
    };
  } catch (error) {
    server.close();
    throw error;
  } finally {
    rmSync(made, { force: true });
  }
}

/** `dead`: no process listens any more. A full backlog or a missing permission counts as alive. */
export async function probeUnix(path: string): Promise<'alive' | 'dead' | 'none'> {
  const { promise, resolve } = Promise.withResolvers<'alive' | 'dead' | 'none'>();
  const socket = connect(path);
  socket.once('connect', () => resolve('alive'));
  socket.once('error', ({ code }: NodeJS.ErrnoException) => {
    resolve(code === 'ECONNREFUSED' ? 'dead' : code === 'ENOENT' ? 'none' : 'alive');
  });
  try {
    return await promise;
  } finally {
    socket.destroy();
  }
}

/** Listens under the temporary name; errors name the final one. */
async function listening(server: Server, made: string, path: string): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen(made, resolve);
  try {
    await promise;
  } catch (error) {
    throw listenError(path, error);
  } finally {
    server.off('error', reject);
  }
}

async function publish(made: string, path: string): Promise<void> {
  // link(2) fails when the name is taken, which rename(2) would not.
  for (let tries = 1; !tryLink(made, path); tries++) {
    if (tries === MAX_TRIES) throw alreadyRunning(path);
    if (lstatSync(path, { throwIfNoEntry: false })?.isSocket() === false) {
      throw new MillraceError(
        'MILLRACE_ERR_USAGE',
        `listen on ${path}: the file exists and is not a socket; remove it, or choose another path`,
      );
    }
    await removeDead(made, path);
  }
}

/**
 * Under a lock: otherwise another process could replace the dead socket between the probe and the
 * removal.
 */
async function removeDead(made: string, path: string): Promise<void> {
  const lock = lockOf(path);
  // The lock is a second name of this daemon's socket, so that others can probe whether its holder
  // lives.
  if (!tryLink(made, lock)) {
    if ((await probeUnix(lock)) === 'alive') throw alreadyRunning(path);
    rmSync(lock, { force: true });
    return;
  }
  try {
    const found = await probeUnix(path);
    if (found === 'alive') throw alreadyRunning(path);
    if (found === 'dead') rmSync(path, { force: true });
  } finally {
    rmSync(lock, { force: true });
  }
}

function tryLink(made: string, path: string): boolean {
  try {
    linkSync(made, path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw listenError(path, error);
  }
}

function lockOf(path: string): string {
  return join(dirname(path), `.${basename(path)}`);
}

/** A process id would not do: daemons in several containers may share the folder. */
function token(): string {
  return randomBytes(4).toString('hex');
}

function alreadyRunning(path: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `already running: a daemon answers on ${path}, or starts there`);
}

function listenError(path: string, error: unknown): MillraceError {
  const { code = 'unknown error' } = error as NodeJS.ErrnoException;
  const isForbidden = code === 'EACCES' || code === 'EPERM' || code === 'EROFS';
  return new MillraceError(
    isForbidden ? 'MILLRACE_ERR_PERMISSION' : 'MILLRACE_ERR_FAILED',
    `listen on ${path}: ${code}${isForbidden ? ' (run as root, or choose another place with api.socket or MILLRACE_RUN_DIR)' : ''}`,
    { cause: error },
  );
}
