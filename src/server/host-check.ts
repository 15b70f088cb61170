// Checks the Host header of requests over TCP: a web page whose name resolves to 127.0.0.1 sends
// its own name (DNS rebinding).

import { isIP } from 'node:net';

/** `configured` is the name or address that the server listens on. */
export function isHostAllowed(header: string | undefined, configured: string): boolean {
  const host = hostOf(header ?? '');
  if (host === null) return false;
  if (host === 'localhost' || host === 'localhost.' || isLoopback(host)) return true;
  if (host === configured.toLowerCase()) return true;
  // A server on all addresses accepts each address. Others can make a name point here, but not an
  // address.
  return (configured === '0.0.0.0' || configured === '::') && isIP(host) !== 0;
}

/** In lower case, without port and brackets; null when it is not a host. */
function hostOf(header: string): string | null {
  const match = /^(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?$/.exec(header.toLowerCase());
  return match?.[1] ?? match?.[2] ?? null;
}

function isLoopback(host: string): boolean {
  return host === '::1' || (isIP(host) === 4 && host.startsWith('127.'));
}
