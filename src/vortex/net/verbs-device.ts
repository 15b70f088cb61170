// Which RDMA device a stream uses, and what wire that is to the other side.

import { UnsupportedError, UsageError } from '../../errors.ts';
import { type Device, type DeviceInfo, listDevices, openDevice, openSoftDevice } from '../../providers/index.ts';
import type { Wire } from './protocol.ts';

/** The wire of a device, by its name. */
export function wireOfDevice(name: string): Wire {
  const info = listDevices().find((device) => device.name === name);
  if (info === undefined) {
    const names = listDevices().map((device) => device.name);
    throw new UsageError(`a stream over ${name}: there is no such device (there are ${names.join(', ')})`);
  }
  return wireOf(info);
}

/** `name`: what the user asked for. Devices of software are found at the address by which the peers found each other. */
export function openStreamDevice(name: string | undefined, wire: Wire, localAddress: string): Device {
  const chosen = name ?? deviceFor(wire);
  const found = wireOfDevice(chosen);
  if (found !== wire) throw new UsageError(`the peer offers ${wire}, and ${chosen} is ${found}`);
  if (chosen === 'soft-tcp') return openSoftDevice({ wire: 'tcp', address: localAddress });
  if (chosen === 'soft-roce') return openSoftDevice({ wire: 'roce', address: localAddress });
  return openDevice(chosen);
}

/** Hardware before software. */
function deviceFor(wire: Wire): string {
  const fitting = listDevices().filter((info) => wireOf(info) === wire);
  const info = fitting.find(({ provider }) => provider !== 'soft') ?? fitting[0];
  if (info === undefined) throw new UnsupportedError(`a stream over ${wire}: this host has no such device`);
  return info.name;
}

function wireOf({ transport }: DeviceInfo): Wire {
  if (transport === 'shm') return 'rdma-shm';
  if (transport === 'tcp') return 'rdma-tcp';
  if (transport === 'iWARP') return 'rdma-iwarp';
  return /roce|ethernet/i.test(transport) ? 'rdma-roce' : 'rdma-ib';
}
