// The entry of a node in etcd: PREFIX/nodes/NAME holds {"v":1,"host":…,"port":…}. It is checked,
// because anybody may have written it.

import { UsageError } from '../errors.ts';
import { isHost, isNodeName, isPort } from '../text/index.ts';
import type { DirectoryPeer } from './directory.ts';

export interface NodePlace {
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

const ENTRY_VERSION = 1;
const MAX_VALUE_BYTES = 1024;
const wildcards = /^[0:.]+$/;

/** The prefix of the keys of all nodes. */
export function nodesPrefix(prefix: string): string {
  return `${prefix}/nodes/`;
}

export function encodeNodeValue({ host, port }: NodePlace): string {
  return JSON.stringify({ v: ENTRY_VERSION, host, port });
}

/**
 * Throws a UsageError that says what is wrong with it. Unknown fields are ignored: later versions
 * may add some.
 */
export function decodeNodeEntry(name: string, value: Uint8Array): DirectoryPeer {
  if (!isNodeName(name)) throw new UsageError('its key is not a node name');
  if (value.length > MAX_VALUE_BYTES) throw new UsageError(`its value has more than ${MAX_VALUE_BYTES} bytes`);
  const { v, host, port } = parseObject(value);
  if (v !== ENTRY_VERSION) throw new UsageError(`its version is not ${ENTRY_VERSION}`);
  if (typeof host !== 'string' || !isHost(host) || wildcards.test(host))
    throw new UsageError('its host is not a host name or address');
  if (typeof port !== 'number' || !isPort(port)) throw new UsageError('its port is not a number from 1 to 65535');
  return { name, host, port, source: 'etcd' };
}

function parseObject(value: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(value));
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) return { ...parsed };
  } catch {
    // Reported below.
  }
  throw new UsageError('its value is not a JSON object');
}
