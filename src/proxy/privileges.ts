// What a running daemon may do: the capabilities that it keeps after its start, and why. It gives
// up all others for good. docs/privileges.md has the same rows, which a test compares.

import { type CapabilityName, forbidDumps, limitPrivileges } from '../native/index.ts';
import { publishError } from '../status/index.ts';

interface Capability {
  readonly name: CapabilityName;
  /** What for, as the docs say it. */
  readonly reason: string;
}

/** Used for as long as the daemon runs. */
export const keptCapabilities: readonly Capability[] = [
  {
    name: 'CAP_BPF',
    reason: 'reads and writes the BPF maps: rules, announced listeners, true clients, sockets of direct connections',
  },
  {
    name: 'CAP_NET_ADMIN',
    reason: 'at stop, takes the BPF programs off the cgroup and gives the loopback device its segment size back',
  },
  { name: 'CAP_IPC_LOCK', reason: 'pins the rings of new links on RDMA devices beyond LimitMEMLOCK' },
  { name: 'CAP_SYS_ADMIN', reason: 'enters the network namespaces of programs in containers, to listen there' },
  {
    name: 'CAP_SYS_PTRACE',
    reason:
      'opens those namespaces by /proc/PID/ns/net, and finds the commands of listeners for `accept`, whoever runs the programs',
  },
];

/** Used by the start only. */
export const startCapabilities: readonly Capability[] = [
  { name: 'CAP_PERFMON', reason: 'loads the BPF programs' },
  { name: 'CAP_SETPCAP', reason: 'gives up capabilities for good, by taking them out of the bounding set' },
];

/** A daemon that cannot give them up says so and goes on. */
export function dropPrivileges(): void {
  try {
    forbidDumps();
    limitPrivileges(keptCapabilities.map(({ name }) => name));
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const message = `${error.message}; the daemon goes on with more privileges than it needs; start it with CAP_SETPCAP (docs/privileges.md)`;
    publishError({ where: 'daemon', message, code: 'code' in error ? String(error.code) : '', peer: '' });
  }
}
