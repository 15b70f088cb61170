// The soft provider: a software RNIC that needs nothing from the kernel.

import { randomBytes } from 'node:crypto';
import { UsageError } from '../../errors.ts';
import { Device, type DeviceInfo, type Provider, type ProviderDevice } from '../../verbs/index.ts';
import { SoftDevice } from './device.ts';
import { checkFaultPlan, type FaultPlan } from './fault-plan.ts';
import type { LinkedQp } from './linked-qp.ts';
import type { RoceQp } from './roce/qp.ts';
import { RoceWire } from './roce/wire.ts';
import { defaultRuntimeDir, ShmWire } from './shm-wire.ts';
import { TcpWire } from './tcp-wire.ts';

export type { FaultPlan } from './fault-plan.ts';
export { defaultRuntimeDir, sweepRuntimeDir } from './shm-wire.ts';

const softWires = ['shm', 'tcp', 'roce'] as const;
export type SoftWire = (typeof softWires)[number];

export interface SoftDeviceOptions {
  readonly wire: SoftWire;
  /**
   * tcp, roce: the local IP address to be found at. Default: MILLRACE_SOFT_ADDRESS, or 127.0.0.1.
   */
  readonly address?: string;
  /**
   * shm: where peers find each other. Default: MILLRACE_RUN_DIR, or the user's runtime directory.
   */
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

/** As `openSoftDevice`, without the object model. */
export function openSoftProvided(options: SoftDeviceOptions): ProviderDevice {
  const { wire, faults } = options;
  if (faults !== undefined) checkFaultPlan(faults);
  const address = options.address ?? process.env.MILLRACE_SOFT_ADDRESS ?? '127.0.0.1';
  switch (wire) {
    case 'shm':
      return new SoftDevice<LinkedQp>(
        infoOf(wire),
        faults,
        (host) => new ShmWire(host, options.runtimeDir ?? defaultRuntimeDir()),
      );
    case 'tcp':
      return new SoftDevice<LinkedQp>(infoOf(wire), faults, (host) => new TcpWire(host, address));
    case 'roce':
      if (faults?.disconnect !== undefined) throw new UsageError('fault plan: the roce wire has no connection to cut');
      return new SoftDevice<RoceQp>(infoOf(wire), faults, (host) => new RoceWire(host, address));
  }
}

/**
 * A soft device with settings of its own; `openDevice('soft-tcp')` and its like take the defaults.
 */
export function openSoftDevice(options: SoftDeviceOptions): Device {
  return new Device(openSoftProvided(options));
}

export const softProvider: Provider = {
  name: 'soft',
  listDevices: () => softWires.map(infoOf),
  openDevice: (name) => openSoftProvided({ wire: softWires.find((wire) => name === `soft-${wire}`) ?? 'shm' }),
};
