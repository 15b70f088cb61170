// Where sender and receiver of a file meet: `HOST`, `HOST:PORT`, `[IPV6]:PORT`.

import { isIPv6 } from 'node:net';
import { UsageError } from '../../errors.ts';

/** As in the thesis that Vortex follows. */
export const DEFAULT_PORT = 40_104;

export interface Address {
  /** Undefined at a sender: all addresses of this host. */
  readonly host: string | undefined;
  readonly port: number;
}

export function parseAddress(text: string): Address {
  // A bare IPv6 address has more than one colon, and none of them is before a port.
  if (isIPv6(text)) return { host: text, port: DEFAULT_PORT };
  const found = /^(?:\[(?<ipv6>[^\]]+)\]|(?<name>[^:[\]\s]*))(?::(?<port>\d{1,5}))?$/.exec(text);
  const { ipv6, name, port = String(DEFAULT_PORT) } = found?.groups ?? {};
  const isGood = found !== null && text !== '' && Number(port) <= 65_535 && (ipv6 === undefined || isIPv6(ipv6));
  if (!isGood) throw new UsageError(`${JSON.stringify(text)} is no address; expected HOST, HOST:PORT or [IPV6]:PORT`);
  const host = ipv6 ?? name;
  return { host: host === '' || host === '*' ? undefined : host, port: Number(port) };
}

export function addressText({ host = '*', port }: Address): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}
