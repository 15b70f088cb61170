// RDMA devices of the kernel, libibverbs, and the devices that it can drive.

import { constants } from 'node:os';
import { join } from 'node:path';
import { getSystemErrorName } from 'node:util';
import { ibverbs } from '../native/index.ts';
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
  // The newest symbol in use: rdma-core 34 has it.
  symbol: '_ibv_query_gid_table',
};

const drivable: Question = {
  id: 'ibverbs',
  group: 'RDMA',
  title: 'devices of libibverbs',
  neededBy: ['ibverbs'],
  consequence: 'no RDMA device can be opened; the software RNIC carries everything',
  fix: 'see RDMA devices and libibverbs',
};

/** Names of devices, or -errno; null without the library. */
type ListDrivable = () => readonly string[] | number | null;

function listDrivable(): readonly string[] | number | null {
  if (!ibverbs.ibvIsAvailable()) return null;
  const devices = ibverbs.ibvDevices();
  return typeof devices === 'number' ? devices : devices.map(([name]) => name);
}

export async function probeRdma(
  machine: Machine,
  signal?: AbortSignal,
  lookUp?: LookUp,
  list: ListDrivable = listDrivable,
): Promise<readonly Finding[]> {
  return Promise.all([
    probeDevices(machine, signal),
    probeLibrary(library, signal, lookUp),
    probeDrivable(machine, list, signal),
  ]);
}

/** Library and kernel may each be missing, or lack the driver of a device. */
async function probeDrivable(machine: Machine, list: ListDrivable, signal?: AbortSignal): Promise<Finding> {
  return answer(
    drivable,
    async () => {
      const listed = list();
      if (listed === null) return { answer: 'no', detail: 'libibverbs is missing or too old', fix: library.fix };
      if (typeof listed === 'number') {
        const isAbsent = listed === -constants.errno.ENOSYS || listed === -constants.errno.ENOENT;
        if (!isAbsent) return { answer: 'unknown', detail: `ibv_get_device_list: ${getSystemErrorName(listed)}` };
        return { answer: 'no', detail: 'the kernel has no RDMA for programs', fix: 'modprobe ib_uverbs' };
      }
      if (listed.length > 0) return { answer: 'yes', detail: listed.join(', ') };
      const known = (await machine.list(SYSFS)) ?? [];
      if (known.length === 0) return { answer: 'no', detail: 'none', fix: devices.fix };
      const detail = `none, though the kernel has ${known.join(', ')}`;
      return {
        answer: 'no',
        detail,
        fix: 'modprobe ib_uverbs, and install the driver: apt-get install ibverbs-providers',
      };
    },
    signal,
  );
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
      const fix = 'bring the link of the port up: ip link set DEV up, then check: rdma link show';
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
