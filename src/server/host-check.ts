// Whether a request over TCP was meant for this server: a web page whose name was pointed at 127.0.0.1 says its own name in Host.

import { isIP } from 'node:net';

/** `configured` is what the server listens on: a name or an address. */
export function isHostAllowed(header: string | undefined, configured: string): boolean {
  const host = hostOf(header ?? '');
  if (host === null) return false;
  if (host === 'localhost' || host === 'localhost.' || isLoopback(host)) return true;
  if (host === configured.toLowerCase()) return true;
  // On all addresses, each of them is right. A name can be made to point here by others, an address cannot.
  return (configured === '0.0.0.0' || configured === '::') && isIP(host) !== 0;
}

/** In lower case and without port and brackets; null when it is none. */
function hostOf(header: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?$/.exec(header.toLowerCase());
  return match?.[1] ?? match?.[2] ?? null;
}

function isLoopback(host: string): boolean {
  return host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
