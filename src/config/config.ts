// The config of a daemon as plain data: checked, with all defaults filled in.

import { availableParallelism, hostname } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { runFolder } from '../system/index.ts';
import type { HostPort } from '../text/index.ts';
import type { ParsedConfig } from './schema.ts';

interface ConfigPeer extends HostPort {
  readonly name: string;
}

type DeepReadonly<T> = T extends readonly (infer Item)[]
  ? readonly DeepReadonly<Item>[]
  : T extends object
    ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
    : T;

export type ChannelConfig = DeepReadonly<ParsedConfig['channel']>;
export type DeviceConfig = DeepReadonly<ParsedConfig['device']>;

export interface Config extends DeepReadonly<Omit<ParsedConfig, 'node' | 'peers' | 'lanes' | 'api'>> {
  readonly node: string;
  readonly peers: readonly ConfigPeer[];
  readonly lanes: number;
  readonly api: { readonly socket: string; readonly http: HostPort | false; readonly allowRemote: boolean };
}

export type Environment = Readonly<Record<string, string | undefined>>;

/** The control socket of an instance whose config does not name one. */
function defaultSocket(instance: string, env: Environment = process.env): string {
  return join(runFolder(env), `${instance}.sock`);
}

/**
 * Fills in what depends on the machine, the environment or other keys. Files are relative to the
 * config's folder.
 */
export function completeConfig(parsed: ParsedConfig, source: string, env: Environment = process.env): Config {
  const { node = hostname(), peers, tls, etcd, lanes, api, device, listen, devices, ...rest } = parsed;
  const folder = dirname(resolve(source));
  const whole = (file: string): string => resolve(folder, file);
  const [firstAddress] = listen.addresses;
  const deviceAddress = device.address ?? firstAddress;
  return {
    node,
    ...rest,
    listen,
    devices,
    peers: peers.map(({ name, address: { host, port } }) => ({ name, host, port })),
    ...(etcd !== undefined && { etcd: wholePaths(etcd, whole) }),
    ...(tls !== undefined && { tls: wholePaths(tls, whole) }),
    device: {
      ...device,
      ...(deviceAddress !== undefined && { address: deviceAddress }),
      ...(device.runtimeDir !== undefined && { runtimeDir: whole(device.runtimeDir) }),
    },
    lanes: lanes === 'auto' ? autoLanes(devices) : lanes,
    api: { ...api, socket: api.socket ?? defaultSocket(parsed.instance, env) },
  };
}

function wholePaths<T extends object>(given: T, whole: (file: string) => string): T {
  const entries = Object.entries(given) as [string, unknown][];
  const isFile = (key: string): boolean => ['ca', 'cert', 'key', 'crl'].includes(key);
  return Object.fromEntries(
    entries.map(([key, value]) => [key, isFile(key) && typeof value === 'string' ? whole(value) : value]),
  ) as T;
}

function autoLanes(devices: readonly string[]): number {
  // RoCE has one UDP port per address, and a device belongs to one lane.
  if (devices.includes('soft-roce')) return 1;
  return Math.min(64, Math.max(1, Math.floor(availableParallelism() / 2)));
}
