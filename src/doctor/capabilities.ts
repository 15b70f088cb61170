// Which of the capabilities that millrace needs this process has.

import { capabilityNamesOf } from '../native/index.ts';
import { answer, type Finding, type Question } from './finding.ts';
import type { Machine } from './machine.ts';

const names = [
  'cap_net_admin',
  'cap_ipc_lock',
  'cap_sys_ptrace',
  'cap_sys_admin',
  'cap_sys_resource',
  'cap_perfmon',
  'cap_bpf',
] as const;

type Capability = (typeof names)[number];

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
  const held = new Set(capabilityNamesOf(BigInt(`0x${hex}`)));
  return new Set(names.filter((name) => held.has(name.toUpperCase())));
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
