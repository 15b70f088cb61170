// The cgroups of a lab, `millrace/ID/HOST`: made before any program runs, and by which all programs
// are killed.

import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { MillraceError, UnsupportedError } from '../errors.ts';
import { findCgroup2Mount } from '../system/index.ts';

/** Shared by all labs; the last lab that is removed removes it too. */
const parentName = 'millrace';
/** SIGKILL takes effect at once except on a process stuck in the kernel. */
const killTimeoutMs = 10_000;
/** The kernel notifies when a cgroup becomes empty, but not when another process has removed it. */
const recheckMs = 100;

function cgroupParent(): string {
  const mount = findCgroup2Mount();
  if (mount === null) {
    throw new UnsupportedError(
      'cgroup v2 is not mounted; try: mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified',
    );
  }
  return join(mount, parentName);
}

export function cgroupOfLab(labId: string): string {
  return join(cgroupParent(), labId);
}

export function makeCgroups(labCgroup: string, hosts: readonly string[]): void {
  for (const host of hosts) {
    makeDirectory(join(labCgroup, host));
  }
  if (!existsSync(join(labCgroup, 'cgroup.kill'))) {
    throw new UnsupportedError('this kernel cannot kill a cgroup as a whole (cgroup.kill, Linux 5.14 or newer)');
  }
}

/** Retries, because the end of another lab may remove the shared parent at any moment. */
function makeDirectory(path: string): void {
  for (let attempt = 0; ; attempt++) {
    try {
      mkdirSync(path, { recursive: true });
      return;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || attempt >= 20) throw error;
    }
  }
}

/**
 * Kills every process in the subtree, however it was started or daemonised, and removes the
 * subtree.
 */
export async function removeCgroups(labCgroup: string): Promise<void> {
  const deadlineMs = performance.now() + killTimeoutMs;
  while (existsSync(labCgroup)) {
    await killAll(labCgroup, deadlineMs);
    // A program that joins between the two steps makes the removal fail, and dies in the next
    // round.
    if (removeTree(labCgroup)) return;
    if (performance.now() > deadlineMs) {
      throw new MillraceError('MILLRACE_ERR_FAILED', `remove ${labCgroup}: programs keep joining it`);
    }
    await setImmediate();
  }
}

/** Does nothing while another lab has a cgroup in it. */
export function removeCgroupParent(): void {
  removeDirectory(cgroupParent());
}

function kill(cgroup: string): void {
  try {
    writeFileSync(join(cgroup, 'cgroup.kill'), '1');
  } catch (error) {
    // ENODEV: removed between open and write, by another sweeper.
    if (!isOneOf(error, ['ENOENT', 'ENODEV'])) throw error;
  }
}

/** How many processes run in the cgroup and below it. */
export function processCount(cgroup: string): number {
  try {
    const own = readFileSync(join(cgroup, 'cgroup.procs'), 'utf8').split('\n').length - 1;
    return childrenOf(cgroup).reduce((sum, child) => sum + processCount(child), own);
  } catch (error) {
    if (isOneOf(error, ['ENOENT', 'ENODEV'])) return 0;
    throw error;
  }
}

function isPopulated(cgroup: string): boolean {
  try {
    return readFileSync(join(cgroup, 'cgroup.events'), 'utf8').includes('populated 1');
  } catch (error) {
    if (isOneOf(error, ['ENOENT', 'ENODEV'])) return false;
    throw error;
  }
}

/**
 * Kills again at every check: a program that was being started may have joined after the last one.
 */
async function killAll(cgroup: string, deadlineMs: number): Promise<void> {
  if (!isPopulated(cgroup)) return;
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const check = (): void => {
    try {
      kill(cgroup);
      if (!isPopulated(cgroup)) {
        resolve();
        return;
      }
      if (performance.now() < deadlineMs) return;
      const left = `${processCount(cgroup)} processes`;
      reject(
        new MillraceError(
          'MILLRACE_ERR_FAILED',
          `kill ${cgroup}: ${left} outlived SIGKILL for ${killTimeoutMs / 1000} s`,
        ),
      );
    } catch (error) {
      reject(error);
    }
  };
  const recheck = setInterval(check, recheckMs);
  const watcher = watchEvents(cgroup, check);
  try {
    check();
    await promise;
  } finally {
    clearInterval(recheck);
    watcher?.close();
  }
}

/**
 * Null when the cgroup is gone already, or inotify has no watch left: then only the interval
 * checks.
 */
function watchEvents(cgroup: string, onChange: () => void): ReturnType<typeof watch> | null {
  try {
    return watch(join(cgroup, 'cgroup.events'), onChange).on('error', onChange);
  } catch {
    return null;
  }
}

/** False when a process still runs in it, or has joined it since. */
function removeTree(cgroup: string): boolean {
  return childrenOf(cgroup).every(removeTree) && removeDirectory(cgroup);
}

function childrenOf(cgroup: string): readonly string[] {
  try {
    const entries = readdirSync(cgroup, { withFileTypes: true });
    return entries.filter((entry) => entry.isDirectory()).map((entry) => join(cgroup, entry.name));
  } catch (error) {
    if (isOneOf(error, ['ENOENT', 'ENODEV'])) return [];
    throw error;
  }
}

function removeDirectory(path: string): boolean {
  try {
    rmdirSync(path);
    return true;
  } catch (error) {
    if (isOneOf(error, ['ENOENT'])) return true;
    if (isOneOf(error, ['EBUSY', 'ENOTEMPTY'])) return false;
    throw error;
  }
}

function isOneOf(error: unknown, codes: readonly string[]): boolean {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  return code !== undefined && codes.includes(code);
}
