// RDMA devices the kernel knows, and the library that drives them.

import { join } from 'node:path';
import { answer, type Finding, type Question } from './finding.ts';
import { type LibraryQuestion, type LookUp, probeLibrary } from './library.ts';
import type { Machine } from './machine.ts';

const SYSFS = '/sys/class/infiniband';

const devices: Question = {
  id: 'rdma-devices',
  group: 'RDMA',
  title: 'RDMA devices',
  neededBy: ['ibverbs'],
  consequence: 'no RDMA device to use; the software RNIC carries everything',
  fix: 'install a NIC with its driver, or: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0',
};

const library: LibraryQuestion = {
  id: 'libibverbs',
  group: 'RDMA',
  title: 'libibverbs',
  neededBy: ['ibverbs'],
  consequence: 'RDMA devices cannot be driven; the software RNIC carries everything',
  fix: 'apt-get install libibverbs1 ibverbs-providers',
  library: 'libibverbs.so.1',
  symbol: 'ibv_get_device_list',
};

export async function probeRdma(machine: Machine, signal?: AbortSignal, lookUp?: LookUp): Promise<readonly Finding[]> {
  return Promise.all([probeDevices(machine, signal), probeLibrary(library, signal, lookUp)]);
}

async function probeDevices(machine: Machine, signal?: AbortSignal): Promise<Finding> {
  return answer(
    devices,
    async () => {
      const names = (await machine.list(SYSFS)) ?? [];
      if (names.length === 0) return { answer: 'no', detail: 'none' };
      const ports = (await Promise.all(names.map((name) => readPorts(machine, name)))).flat();
      const detail = ports.map((port) => `${port.device} port ${port.number} ${port.state}`).join(', ');
      if (ports.some((port) => port.state === 'ACTIVE')) return { answer: 'yes', detail };
      const fix = 'bring the link of the port up: ip link set DEV up, and look at: rdma link show';
      return { answer: 'no', detail: detail === '' ? `${names.join(', ')} without ports` : detail, fix };
    },
    signal,
  );
}

interface Port {
  readonly device: string;
  readonly number: string;
  readonly state: string;
}

async function readPorts(machine: Machine, device: string): Promise<readonly Port[]> {
  const numbers = (await machine.list(join(SYSFS, device, 'ports'))) ?? [];
  return Promise.all(
    numbers.map(async (number) => {
      // "4: ACTIVE"
      const text = await machine.readText(join(SYSFS, device, 'ports', number, 'state'));
      return { device, number, state: text?.split(':')[1]?.trim() ?? 'in an unknown state' };
    }),
  );
}
