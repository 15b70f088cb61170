// Where something is on the network: a host, perhaps with a port, as in 10.0.0.2, b.example:4790 or
// [fd00::2]:4790.

import { isIP, isIPv6 } from 'node:net';

export interface HostPort {
  readonly host: string;
  readonly port: number;
}

const label = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?';
const namePattern = new RegExp(`^(?=.{1,253}$)${label}(?:\\.${label})*$`);

/** An address, or a name that DNS could know. 10.0.0.300 is neither. */
export function isHost(text: string): boolean {
  return isIP(text) !== 0 || (namePattern.test(text) && !/^[\d.]+$/.test(text));
}

export function isPort(port: number): boolean {
  return Number.isInteger(port) && port >= 1 && port <= 65_535;
}

/** Null when it is none, or when it has no port and there is no default. */
export function parseHostPort(text: string, defaultPort?: number): HostPort | null {
  // A bare IPv6 address has colons, too; with a port it needs brackets.
  if (isIPv6(text)) return defaultPort === undefined ? null : { host: text, port: defaultPort };
  const match = /^(?:\[([^\]]+)\]|([^:[\]]+))(?::(\d{1,5}))?$/.exec(text);
  const host = match?.[1] ?? match?.[2] ?? '';
  const port = match?.[3] === undefined ? defaultPort : Number(match[3]);
  const isRight = match?.[1] === undefined ? isHost(host) : isIPv6(host);
  return isRight && port !== undefined && isPort(port) ? { host, port } : null;
}

export function formatHostPort({ host, port }: HostPort): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
