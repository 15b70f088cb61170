// The devices of a lane: each is opened once, and again after it has gone.

import { createHash } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import type { DeviceConfig } from '../config/index.ts';
import {
  type Device,
  defaultRuntimeDir,
  type FaultPlan,
  openDevice,
  openSoftDevice,
  type SoftWire,
  sweepRuntimeDir,
} from '../providers/index.ts';
import { makeRunFolder } from '../system/index.ts';

/** For tests and trials: a fault plan as JSON, for soft devices. */
const FAULTS_VARIABLE = 'MILLRACE_FAULTS';

/**
 * The same for daemons whose `soft-shm` devices find each other, and for no others. What daemons
 * left there that were killed is removed, whether or not this one opens a device.
 */
export function meetingPlace({ runtimeDir }: DeviceConfig): string {
  const folder = runtimeDir ?? defaultRuntimeDir();
  makeRunFolder(folder);
  sweepRuntimeDir(folder);
  const { dev, ino } = statSync(folder);
  const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  return createHash('sha256').update(`${boot} ${dev} ${ino}`).digest('hex');
}

export class DevicePool implements Disposable {
  readonly #config: DeviceConfig;
  readonly #devices = new Map<string, Device>();

  constructor(config: DeviceConfig) {
    this.#config = config;
  }

  open(name: string): Device {
    const known = this.#devices.get(name);
    if (known !== undefined && !known.isClosed) return known;
    const device = this.#open(name);
    this.#devices.set(name, device);
    device.events.on('deviceGone', () => {
      if (this.#devices.get(name) === device) this.#devices.delete(name);
    });
    return device;
  }

  close(): void {
    for (const device of this.#devices.values()) device.close();
    this.#devices.clear();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(name: string): Device {
    if (!name.startsWith('soft-')) return openDevice(name);
    const { address, runtimeDir } = this.#config;
    const plan = process.env[FAULTS_VARIABLE];
    return openSoftDevice({
      wire: name.slice('soft-'.length) as SoftWire,
      ...(address !== undefined && { address }),
      ...(runtimeDir !== undefined && { runtimeDir }),
      ...(plan !== undefined && { faults: JSON.parse(plan) as FaultPlan }),
    });
  }
}
