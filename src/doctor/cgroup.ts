// cgroup v2: where it is mounted, and an empty cgroup to try hooks on, which is always removed
// afterwards.

import { mkdirSync, readdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { findCgroup2Mount } from '../system/index.ts';
import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';
import { isSystemError } from './system-error.ts';

const NAME = /^millrace-doctor-(\d+)-\d+$/;
const MAX_TRIALS = 64;

const question: Question = {
  id: 'cgroup2',
  group: 'kernel',
  title: 'cgroup v2',
  neededBy: ['connect', 'shortcut', 'lab'],
  consequence: 'there is nothing to attach steering to, and the lab cannot keep its hosts apart',
  fix: 'mount -t cgroup2 none /sys/fs/cgroup/unified (or boot with systemd.unified_cgroup_hierarchy=1)',
};

/** A cgroup of this process's own, without any process in it. */
export class TrialCgroup implements Disposable {
  readonly path: string;

  /** Also removes the cgroups of doctors that were killed. */
  static create(mount: string, pid = process.pid): TrialCgroup {
    sweep(mount);
    for (let trial = 0; ; trial++) {
      const path = join(mount, `millrace-doctor-${pid}-${trial}`);
      try {
        mkdirSync(path);
        return new TrialCgroup(path);
      } catch (error) {
        if (!isSystemError(error, 'EEXIST') || trial === MAX_TRIALS) throw error;
      }
    }
  }

  private constructor(path: string) {
    this.path = path;
  }

  close(): void {
    remove(this.path);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

interface CgroupProbe {
  readonly finding: Finding;
  /** To be closed after use. Null when none could be created. */
  readonly trial: TrialCgroup | null;
}

export async function probeCgroup(
  machine: Machine,
  signal?: AbortSignal,
  create: (mount: string) => TrialCgroup = (mount) => TrialCgroup.create(mount),
): Promise<CgroupProbe> {
  let trial: TrialCgroup | null = null;
  const finding = await answer(
    question,
    async () => {
      const mountinfo = await machine.readText('/proc/self/mountinfo');
      if (mountinfo === null) return { answer: 'unknown', detail: 'there is no /proc/self/mountinfo' };
      const mount = findCgroup2Mount(mountinfo);
      if (mount === null) return { answer: 'no', detail: 'not mounted' };
      try {
        trial = create(mount);
        return { answer: 'yes', detail: mount };
      } catch (error) {
        if (!isSystemError(error, 'EPERM', 'EACCES', 'EROFS')) throw error;
        const isReadOnly = error.code === 'EROFS';
        return {
          answer: 'no',
          detail: `${mount}, but no cgroup can be made there (${error.code})`,
          isForbidden: !isReadOnly,
          fix: isReadOnly ? `mount -o remount,rw ${mount}` : 'run as root',
        };
      }
    },
    signal,
  );
  return { finding, trial };
}

function sweep(mount: string): void {
  for (const name of readdirSync(mount)) {
    const [, pid] = NAME.exec(name) ?? [];
    if (pid !== undefined && !isAlive(Number(pid))) remove(join(mount, name));
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return !isSystemError(error, 'ESRCH');
  }
}

function remove(path: string): void {
  try {
    rmdirSync(path);
  } catch (error) {
    // Another doctor has removed it, or will.
    if (!isSystemError(error, 'ENOENT', 'EBUSY', 'EACCES', 'EPERM')) throw error;
  }
}
