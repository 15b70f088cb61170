// The ibverbs provider: the RDMA devices that the kernel has, by libibverbs, which is opened at run
// time.

import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ibverbs } from '../../native/index.ts';
import type { DeviceInfo, Provider } from '../../verbs/index.ts';
import { IbvDevice } from './device.ts';

const SYSFS = '/sys/class/infiniband';

/** enum ibv_transport_type; that of IB devices depends on what is below. */
const IWARP = 1;

/** None where the library or the kernel's part is missing: `millrace doctor` says why. */
function listDevices(): readonly DeviceInfo[] {
  const devices = ibverbs.ibvIsAvailable() ? ibverbs.ibvDevices() : [];
  if (typeof devices === 'number') return [];
  return devices.map(([name, guid, transport]) => ({
    name,
    provider: 'ibverbs',
    guid: (guid.match(/.{4}/g) ?? []).join(':'),
    transport: transport === IWARP ? 'iWARP' : linkOf(name),
  }));
}

function linkOf(name: string): string {
  try {
    const layer = readFileSync(join(SYSFS, name, 'ports', '1', 'link_layer'), 'utf8').trim();
    return layer === 'Ethernet' ? 'RoCEv2' : layer;
  } catch {
    return 'InfiniBand';
  }
}

export const ibverbsProvider: Provider = {
  name: 'ibverbs',
  listDevices,
  openDevice: (name) => {
    const info = listDevices().find((device) => device.name === name);
    return new IbvDevice(info ?? { name, provider: 'ibverbs', guid: '', transport: 'InfiniBand' });
  },
};
