// Which of the capabilities that millrace needs this process has.

import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';

/** Bit numbers of <linux/capability.h>. */
const bits = {
  cap_net_admin: 12,
  cap_ipc_lock: 14,
  cap_sys_ptrace: 19,
  cap_sys_admin: 21,
  cap_sys_resource: 24,
  cap_perfmon: 38,
  cap_bpf: 39,
} as const;

type Capability = keyof typeof bits;

const names = Object.keys(bits) as readonly Capability[];

const question: Question = {
  id: 'capabilities',
  group: 'kernel',
  title: 'capabilities',
  neededBy: ['connect', 'shortcut'],
  consequence: 'BPF programs cannot be loaded and attached, so nothing can be steered',
  fix: 'run as root, or give the service AmbientCapabilities=CAP_BPF CAP_NET_ADMIN CAP_PERFMON',
};

/** The effective capabilities, or null when /proc does not tell. */
export async function readCapabilities(machine: Machine): Promise<ReadonlySet<Capability> | null> {
  const status = await machine.readText('/proc/self/status');
  const [, hex] = /^CapEff:\s*([0-9a-f]+)$/m.exec(status ?? '') ?? [];
  if (hex === undefined) return null;
  const mask = BigInt(`0x${hex}`);
  return new Set(names.filter((name) => (mask >> BigInt(bits[name])) & 1n));
}

export async function probeCapabilities(machine: Machine, signal?: AbortSignal): Promise<Finding> {
  return answer(
    question,
    async () => {
      const held = await readCapabilities(machine);
      if (held === null) return { answer: 'unknown', detail: 'no CapEff line in /proc/self/status' };
      // cap_sys_admin contains the two newer ones, which were split off from it in 5.8.
      const canBpf = held.has('cap_sys_admin') || (held.has('cap_bpf') && held.has('cap_perfmon'));
      const isEnough = canBpf && held.has('cap_net_admin');
      const missing = names.filter((name) => !held.has(name));
      const has = held.size === 0 ? 'none of those in use here' : [...held].join(' ');
      const detail = missing.length === 0 || held.size === 0 ? has : `${has}; not ${missing.join(' ')}`;
      return isEnough ? { answer: 'yes', detail } : { answer: 'no', detail, isForbidden: true };
    },
    signal,
  );
}
