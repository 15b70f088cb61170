// Memory for streams and for RDMA: huge pages, and how much may be locked.

import { SharedMemory } from '../native/index.ts';
import { readCapabilities } from './capabilities.ts';
import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';
import { isSystemError } from './system-error.ts';

const MIB = 1024 * 1024;
/** A daemon with a few peers registers rings of this order. */
const ENOUGH_LOCKED_BYTES = 512 * MIB;

const hugePages: Question = {
  id: 'huge-pages',
  group: 'memory',
  title: 'huge pages',
  neededBy: [],
  improves: ['vortex'],
  consequence: 'streams as memory run at about a quarter of memory speed',
  fix: 'sysctl vm.nr_hugepages=64, or echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled',
};

const memlock: Question = {
  id: 'memlock',
  group: 'memory',
  title: 'locked memory',
  neededBy: [],
  improves: ['ibverbs'],
  consequence: 'RDMA devices cannot register rings larger than the limit (BPF maps do not count since 5.11)',
  fix: 'LimitMEMLOCK=infinity in the systemd unit, ulimit -l unlimited, or CAP_IPC_LOCK',
};

type TryHugePage = () => void;

function mapHugePage(): void {
  SharedMemory.create({ sizeBytes: 2 * MIB, name: 'millrace-doctor', hugePages: true, populate: true }).close();
}

export async function probeMemory(
  machine: Machine,
  signal?: AbortSignal,
  tryHugePage: TryHugePage = mapHugePage,
): Promise<readonly Finding[]> {
  return [await probeHugePages(machine, signal, tryHugePage), await probeMemlock(machine, signal)];
}

async function probeHugePages(
  machine: Machine,
  signal: AbortSignal | undefined,
  attempt: TryHugePage,
): Promise<Finding> {
  return answer(
    hugePages,
    async () => {
      const setting = await machine.readText('/sys/kernel/mm/transparent_hugepage/shmem_enabled');
      const [, thp] = /\[(\w+)\]/.exec(setting ?? '') ?? [];
      const shmem = `transparent for shared memory: ${thp ?? 'not in this kernel'}`;
      try {
        attempt();
        return { answer: 'yes', detail: `2 MiB were mapped; ${shmem}` };
      } catch (error) {
        if (!isSystemError(error, 'ENOMEM', 'ENOENT', 'EINVAL', 'ENOSYS', 'ENODEV')) throw error;
        const reserved = error.code === 'ENOMEM' ? 'none free' : `not in this kernel (${error.code})`;
        // The kernel gives shared memory huge pages on its own, or on request by madvise().
        const isTransparent = thp !== undefined && ['always', 'within_size', 'advise', 'force'].includes(thp);
        return { answer: isTransparent ? 'yes' : 'no', detail: `reserved: ${reserved}; ${shmem}` };
      }
    },
    signal,
  );
}

async function probeMemlock(machine: Machine, signal?: AbortSignal): Promise<Finding> {
  return answer(
    memlock,
    async () => {
      const limits = await machine.readText('/proc/self/limits');
      const [, soft] = /^Max locked memory\s+(\S+)/m.exec(limits ?? '') ?? [];
      if (soft === undefined) return { answer: 'unknown', detail: 'no such line in /proc/self/limits' };
      const limit = soft === 'unlimited' ? 'unlimited' : `${Math.floor(Number(soft) / MIB)} MiB`;
      const isExempt = (await readCapabilities(machine))?.has('cap_ipc_lock') === true;
      if (isExempt) return { answer: 'yes', detail: `${limit}, which cap_ipc_lock lifts` };
      const isEnough = soft === 'unlimited' || Number(soft) >= ENOUGH_LOCKED_BYTES;
      return isEnough ? { answer: 'yes', detail: limit } : { answer: 'no', detail: limit, isForbidden: true };
    },
    signal,
  );
}
