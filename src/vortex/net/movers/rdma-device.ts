// Which RDMA device a stream uses, and which wire the peer must have for it.

import { UnsupportedError, UsageError } from '../../../errors.ts';
import { type Device, type DeviceInfo, listDevices, openDevice, openSoftDevice } from '../../../providers/index.ts';
import type { Wire } from '../protocol.ts';

/** The wire of a device, by its name. */
export function wireOfDevice(name: string): Wire {
  const info = listDevices().find((device) => device.name === name);
  if (info === undefined) {
    const names = listDevices().map((device) => device.name);
    throw new UsageError(`open a stream over ${name}: there is no such device (there are ${names.join(', ')})`);
  }
  return wireOf(info);
}

/**
 * `name`: the device that the user chose, if any. Soft devices use the address of the control
 * connection.
 */
export function openStreamDevice(name: string | undefined, wire: Wire, localAddress: string): Device {
  const chosen = name ?? deviceFor(wire);
  const found = wireOfDevice(chosen);
  if (found !== wire) throw new UsageError(`the peer offers the wire ${wire}, and the device ${chosen} has ${found}`);
  if (chosen === 'soft-tcp') return openSoftDevice({ wire: 'tcp', address: localAddress });
  if (chosen === 'soft-roce') return openSoftDevice({ wire: 'roce', address: localAddress });
  return openDevice(chosen);
}

/** A hardware device, if there is one for this wire; else a soft device. */
function deviceFor(wire: Wire): string {
  const fitting = listDevices().filter((info) => wireOf(info) === wire);
  const info = fitting.find(({ provider }) => provider !== 'soft') ?? fitting[0];
  if (info === undefined)
    throw new UnsupportedError(`open a stream over ${wire}: this host has no device for that wire`);
  return info.name;
}

function wireOf({ transport }: DeviceInfo): Wire {
  if (transport === 'shm') return 'rdma-shm';
  if (transport === 'tcp') return 'rdma-tcp';
  if (transport === 'iWARP') return 'rdma-iwarp';
  return /roce|ethernet/i.test(transport) ? 'rdma-roce' : 'rdma-ib';
}
