// The processor time of all processes of two lab hosts: programs, daemons, and the kernel's work
// for them.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { PeerHosts } from './steer-peers.ts';

/** Since the hosts were made. */
export function cpuSeconds({ client, server }: PeerHosts): number {
  const us = [client, server].map(({ cgroup }) => {
    const text = readFileSync(join(cgroup, 'cpu.stat'), 'utf8');
    return Number(/^usage_usec (\d+)$/m.exec(text)?.[1]);
  });
  return us.reduce((sum, part) => sum + part, 0) / 1e6;
}
