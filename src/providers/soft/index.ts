// The soft provider: a software RNIC that needs nothing from the kernel.

import { randomBytes } from 'node:crypto';
import { Device, type DeviceInfo, type Provider } from '../../verbs/index.ts';
import { SoftDevice } from './device.ts';
import { checkFaultPlan, type FaultPlan } from './fault-plan.ts';
import { defaultRuntimeDir, ShmWire } from './shm-wire.ts';
import { TcpWire } from './tcp-wire.ts';

export type { FaultPlan } from './fault-plan.ts';

export type SoftWire = 'shm' | 'tcp';

export interface SoftDeviceOptions {
  readonly wire: SoftWire;
  /** tcp: the local IP address to be found at. Default: MILLRACE_SOFT_ADDRESS, or 127.0.0.1. */
  readonly address?: string;
  /** shm: where peers find each other. Default: MILLRACE_RUN_DIR, or the user's runtime directory. */
  readonly runtimeDir?: string;
  readonly faults?: FaultPlan;
}

function infoOf(wire: SoftWire): DeviceInfo {
  return { name: `soft-${wire}`, provider: 'soft', guid: guid(), transport: wire };
}

/** One for the process: GUIDs name the device, not its user. */
let processGuid: string | undefined;

function guid(): string {
  processGuid ??= (randomBytes(8).toString('hex').match(/.{4}/g) ?? []).join(':');
  return processGuid;
}

function open(options: SoftDeviceOptions): SoftDevice {
  const { wire, faults } = options;
  if (faults !== undefined) checkFaultPlan(faults);
  return new SoftDevice(infoOf(wire), faults, (host) =>
    wire === 'tcp'
      ? new TcpWire(host, options.address ?? process.env.MILLRACE_SOFT_ADDRESS ?? '127.0.0.1')
      : new ShmWire(host, options.runtimeDir ?? defaultRuntimeDir()),
  );
}

/** A soft device with settings of its own; `openDevice('soft-shm')` and `openDevice('soft-tcp')` take the defaults. */
export function openSoftDevice(options: SoftDeviceOptions): Device {
  return new Device(open(options));
}

export const softProvider: Provider = {
  name: 'soft',
  listDevices: () => [infoOf('shm'), infoOf('tcp')],
  openDevice: (name) => open({ wire: name === 'soft-tcp' ? 'tcp' : 'shm' }),
};
