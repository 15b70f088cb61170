// Which devices there are, over all providers.

import { UnsupportedError, UsageError } from '../errors.ts';
import { didYouMean } from '../text/index.ts';
import { Device } from './device.ts';
import type { DeviceInfo, Provider, ProviderDevice } from './provider.ts';

const providers: Provider[] = [];

/** Providers are asked in the order in which they were registered. */
export function registerProvider(provider: Provider): void {
  if (!providers.some(({ name }) => name === provider.name)) providers.push(provider);
}

export function listDevices(): readonly DeviceInfo[] {
  return providers.flatMap((provider) => provider.listDevices());
}

/** By name; without one, the first there is. */
export function openDevice(name?: string): Device {
  return new Device(openProvided(name));
}

/** As `openDevice`, without the object model: for providers that wrap another one. */
export function openProvided(name?: string): ProviderDevice {
  const devices = listDevices();
  const info = name === undefined ? devices[0] : devices.find((device) => device.name === name);
  if (info === undefined) {
    if (name === undefined) throw new UnsupportedError('open an RDMA device: there is none');
    const names = devices.map((device) => device.name);
    throw new UsageError(`open RDMA device ${name}: there is no such device${didYouMean(name, names)}`);
  }
  const provider = providers.find((candidate) => candidate.name === info.provider);
  if (provider === undefined) throw new UnsupportedError(`open ${info.name}: its provider is gone`);
  return provider.openDevice(info.name);
}
