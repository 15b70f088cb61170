// What a node writes about itself into etcd: PREFIX/nodes/NAME holds {"v":1,"host":…,"port":…}. Others may write anything.

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

/** What all keys of nodes start with. */
export function nodesPrefix(prefix: string): string {
  return `${prefix}/nodes/`;
}

export function encodeNodeValue({ host, port }: NodePlace): string {
  return JSON.stringify({ v: ENTRY_VERSION, host, port });
}

/** Throws a UsageError that says what is wrong with it. Keys that are not known yet are left to later versions. */
export function decodeNodeEntry(name: string, value: Uint8Array): DirectoryPeer {
  if (!isNodeName(name)) throw new UsageError('its key is not the name of a node');
  if (value.length > MAX_VALUE_BYTES) throw new UsageError(`its value has more than ${MAX_VALUE_BYTES} bytes`);
  const { v, host, port } = parseObject(value);
  if (v !== ENTRY_VERSION) throw new UsageError(`its version is not ${ENTRY_VERSION}`);
  if (typeof host !== 'string' || !isHost(host) || wildcards.test(host)) throw new UsageError('its host is none');
  if (typeof port !== 'number' || !isPort(port)) throw new UsageError('its port is none');
  return { name, host, port, source: 'etcd' };
}

function parseObject(value: Uint8Array): Readonly<Record<string, unknown>> {
  try {
    const parsed: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(value));
    if (typeof parsed === 'object' && parsed !== null && !Array.isArray(parsed)) return { ...parsed };
  } catch {
    // Said below.
  }
  throw new UsageError('its value is no JSON object');
}
