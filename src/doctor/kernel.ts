// The kernel's version, and whether BPF objects can be pinned.

import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';

/** The oldest long-term kernel with all hooks that steering is made of. */
const OLDEST = { major: 5, minor: 10 } as const;

const version: Question = {
  id: 'kernel-version',
  group: 'kernel',
  title: 'kernel version',
  neededBy: [],
  consequence: `millrace is not tested on kernels older than ${OLDEST.major}.${OLDEST.minor}; the other answers decide`,
  fix: 'use a newer kernel',
};

const bpffs: Question = {
  id: 'bpffs',
  group: 'kernel',
  title: 'BPF file system',
  neededBy: [],
  improves: ['connect', 'shortcut'],
  consequence: 'nothing can be pinned: steering ends with its process and cannot be handed to the next one',
  fix: 'mount -t bpf bpf /sys/fs/bpf',
};

export async function probeKernel(machine: Machine, signal?: AbortSignal): Promise<readonly Finding[]> {
  return Promise.all([
    answer(
      version,
      async () => {
        const release = (await machine.readText('/proc/sys/kernel/osrelease'))?.trim() ?? '';
        const [, major, minor] = /^(\d+)\.(\d+)/.exec(release) ?? [];
        if (major === undefined || minor === undefined) {
          return { answer: 'unknown', detail: `the kernel calls itself ${JSON.stringify(release)}` };
        }
        const isNew = Number(major) > OLDEST.major || (Number(major) === OLDEST.major && Number(minor) >= OLDEST.minor);
        return { answer: isNew ? 'yes' : 'no', detail: release };
      },
      signal,
    ),
    answer(
      bpffs,
      async () => {
        const mounts = await machine.readText('/proc/self/mounts');
        if (mounts === null) return { answer: 'unknown', detail: 'there is no /proc/self/mounts' };
        const [, path] = /^\S+ (\S+) bpf /m.exec(mounts) ?? [];
        return path === undefined ? { answer: 'no', detail: 'not mounted' } : { answer: 'yes', detail: path };
      },
      signal,
    ),
  ]);
}
