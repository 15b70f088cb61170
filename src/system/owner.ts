// The identity of a process, written down so that any later process can tell whether it still runs.

import { readFileSync, readlinkSync } from 'node:fs';

/**
 * A pid alone proves nothing: pids are reused, restart after a boot, and mean other processes in
 * other namespaces.
 */
export interface Owner {
  readonly pid: number;
  /** Field 22 of /proc/PID/stat: clock ticks since boot. */
  readonly startTicks: number;
  readonly bootId: string;
  /**
   * Inodes of the pid and time namespaces in which `pid` and `startTicks` were read, as `PID-TIME`.
   */
  readonly namespaces: string;
}

/** Only what a `dead` owner left may be removed. */
export type Liveness = 'alive' | 'dead' | 'unknown';

/** What decides the liveness; tests use a fake. */
export interface OwnerView {
  readonly bootId: string;
  readonly namespaces: string;
  /**
   * The text of /proc/PID/stat, or null when there is no such process. Throws when it could not be
   * read.
   */
  readonly statOf: (pid: number) => string | null;
}

interface ProcessStat {
  readonly state: string;
  readonly threads: number;
  readonly startTicks: number;
}

const bootIdPattern = /^[0-9a-f-]{36}$/;
const namespacesPattern = /^\d{1,20}-\d{1,20}$/;

/**
 * Fields are counted from the last parenthesis: the command name before it may hold spaces and
 * parentheses itself.
 */
export function parseProcessStat(text: string): ProcessStat | null {
  const fields = text
    .slice(text.lastIndexOf(')') + 1)
    .trim()
    .split(' ');
  const state = fields[0];
  const threads = Number(fields[17]);
  const startTicks = Number(fields[19]);
  if (state === undefined || state === '' || !Number.isSafeInteger(threads) || !Number.isSafeInteger(startTicks))
    return null;
  return { state, threads, startTicks };
}

export function thisMachine(): OwnerView {
  return {
    bootId: readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim(),
    namespaces: `${namespaceInode('pid')}-${namespaceInode('time')}`,
    statOf: (pid) => {
      try {
        return readFileSync(`/proc/${pid}/stat`, 'utf8');
      } catch (error) {
        // ESRCH: it went away between open and read.
        const { code } = error as NodeJS.ErrnoException;
        if (code === 'ENOENT' || code === 'ESRCH') return null;
        throw error;
      }
    },
  };
}

/** `pid:[4026531836]` -> `4026531836`; 0 where the kernel has no such namespaces. */
function namespaceInode(kind: 'pid' | 'time'): string {
  try {
    return /\[(\d+)\]/.exec(readlinkSync(`/proc/self/ns/${kind}`))?.[1] ?? '0';
  } catch {
    return '0';
  }
}

export function currentOwner(view: OwnerView = thisMachine()): Owner {
  const stat = parseProcessStat(view.statOf(process.pid) ?? '');
  if (stat === null) throw new Error(`/proc/${process.pid}/stat cannot be read: is /proc mounted?`);
  return { pid: process.pid, startTicks: stat.startTicks, bootId: view.bootId, namespaces: view.namespaces };
}

export function livenessOf(owner: Owner, view: OwnerView = thisMachine()): Liveness {
  if (owner.bootId !== view.bootId) return 'dead';
  // In another pid namespace the number means another process; in another time namespace the start
  // time is shifted.
  if (owner.namespaces !== view.namespaces) return 'unknown';
  let text: string | null;
  try {
    text = view.statOf(owner.pid);
  } catch {
    return 'unknown';
  }
  if (text === null) return 'dead';
  const stat = parseProcessStat(text);
  if (stat === null) return 'unknown';
  if (stat.startTicks !== owner.startTicks) return 'dead';
  // A zombie nobody has reaped is dead, but not while other threads of it still finish a system
  // call.
  return (stat.state === 'Z' || stat.state === 'X') && stat.threads <= 1 ? 'dead' : 'alive';
}

/** Checks what was read from a file. */
export function parseOwner(value: unknown): Owner | null {
  if (typeof value !== 'object' || value === null) return null;
  const { pid, startTicks, bootId, namespaces } = value as Partial<Record<keyof Owner, unknown>>;
  if (typeof pid !== 'number' || !Number.isSafeInteger(pid) || pid <= 0) return null;
  if (typeof startTicks !== 'number' || !Number.isSafeInteger(startTicks) || startTicks < 0) return null;
  if (typeof bootId !== 'string' || !bootIdPattern.test(bootId)) return null;
  if (typeof namespaces !== 'string' || !namespacesPattern.test(namespaces)) return null;
  return { pid, startTicks, bootId, namespaces };
}

/** An owner as part of a file name, and back. */
export function ownerToken(owner: Owner): string {
  return `${owner.pid}_${owner.startTicks}_${owner.namespaces}_${owner.bootId}`;
}

export function parseOwnerToken(token: string): Owner | null {
  const [pid, startTicks, namespaces, bootId, ...rest] = token.split('_');
  if (rest.length > 0) return null;
  return parseOwner({ pid: Number(pid), startTicks: Number(startTicks), namespaces, bootId });
}
