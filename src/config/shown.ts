// A config for display: every key with its value, written as in the file, passwords masked.

import { formatHostPort, formatSize } from '../text/index.ts';
import type { Config } from './config.ts';

const MASK = '********';

/** It can be loaded again, except for the passwords. */
export function shownConfig(config: Config): object {
  const { peers, etcd, api, channel, socketBufferBytes, ...rest } = config;
  return {
    ...rest,
    peers: peers.map(({ name, ...place }) => ({ name, address: formatHostPort(place) })),
    ...(etcd !== undefined && { etcd: { ...etcd, ...(etcd.password !== undefined && { password: MASK }) } }),
    channel: withSizes(channel),
    api: { ...api, http: api.http === false ? false : formatHostPort(api.http) },
    socketBufferBytes: formatSize(socketBufferBytes),
  };
}

function withSizes(values: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(
    Object.entries(values).map(([key, value]) => [
      key,
      key.endsWith('Bytes') && typeof value === 'number' ? formatSize(value) : value,
    ]),
  );
}
