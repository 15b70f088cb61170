// The folders of the sockets of daemons and backends: where they are, and that nobody else can put
// sockets there or swap the folder for another.

import { lstatSync, readFileSync, readlinkSync, type Stats } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { MillraceError } from '../errors.ts';
import { makeFolder } from './folder.ts';

const WRITABLE_BY_OTHERS = 0o002;
const WRITABLE_BY_GROUP = 0o020;
/** Of a folder: only the owner of an entry may remove or rename it. */
const STICKY = 0o1000;
/** As the kernel does (SYMLOOP). */
const MAX_SYMLINKS = 40;
/** What a file of a user that a user namespace does not know shows as its owner. */
const OVERFLOW_UID = 65_534;

/** `MILLRACE_RUN_DIR` of the environment, or /run/millrace. */
export function runFolder(env: Readonly<Record<string, string | undefined>>): string {
  const { MILLRACE_RUN_DIR: folder = '' } = env;
  return resolve(folder === '' ? '/run/millrace' : folder);
}

/**
 * Where programs that have the library find the daemon called `instance`: in the folder of its
 * control socket. The name does not end as those of control sockets do.
 */
export function directSocketPath(instance: string, folder: string): string {
  return join(folder, `${instance}.direct`);
}

/**
 * Creates a folder for sockets and those missing above it. Throws when it, or a folder or symbolic
 * link on the way to it, is another user's or may be written by others.
 */
export function makeRunFolder(path: string): void {
  const folder = resolve(path);
  makeFolder(folder);
  const problem = problemOf(folder, true);
  if (problem === undefined) return;
  throw new MillraceError(
    'MILLRACE_ERR_PERMISSION',
    `keep sockets in ${folder}: ${problem}, so that somebody else could put sockets there; remove it or give it to root and chmod go-w, or choose another folder with MILLRACE_RUN_DIR, api.socket or device.runtimeDir`,
  );
}

/** From the root down, so that what was checked cannot be swapped any more. */
function problemOf(folder: string, isLast: boolean, links = 0): string | undefined {
  const parent = dirname(folder);
  if (parent !== folder) {
    const above = problemOf(parent, false, links);
    if (above !== undefined) return above;
  }
  const stats = lstatSync(folder, { throwIfNoEntry: false });
  if (stats === undefined) return `${folder} has gone`;
  if (!isTrusted(stats)) return `${folder} belongs to user ${stats.uid}`;
  if (stats.isSymbolicLink()) {
    if (links >= MAX_SYMLINKS) return `${folder} is a symbolic link that leads nowhere`;
    return problemOf(resolve(parent, readlinkSync(folder)), isLast, links + 1);
  }
  const isSticky = (stats.mode & STICKY) !== 0;
  // On the way to it a sticky folder will do, as /tmp is one.
  const forbidden = isLast ? WRITABLE_BY_OTHERS | WRITABLE_BY_GROUP : isSticky ? 0 : WRITABLE_BY_OTHERS;
  return (stats.mode & forbidden) === 0 ? undefined : `${folder} may be written by other users`;
}

function isTrusted({ uid }: Stats): boolean {
  return uid === 0 || uid === process.geteuid?.() || (uid === OVERFLOW_UID && isInUserNamespace());
}

/** There the folders of the machine's root have no known owner. */
function isInUserNamespace(): boolean {
  return !/^\s*0\s+0\s+4294967295\s*$/.test(readFileSync('/proc/self/uid_map', 'utf8'));
}
