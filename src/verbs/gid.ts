// Global identifiers: 16 bytes, written like IPv6 addresses.

import { decodeAddress, encodeAddress } from '../native/index.ts';

export type Gid = string;

// A GID is the address part of a sockaddr_in6.
const offset = 8;
const sockaddrBytes = 28;

export function gidBytes(gid: Gid): Uint8Array {
  return encodeAddress({ family: 'ipv6', host: gid, port: 0 }).slice(offset, offset + 16);
}

export function formatGid(bytes: Uint8Array): Gid {
  const sockaddr = new Uint8Array(sockaddrBytes);
  sockaddr[0] = 10;
  sockaddr.set(bytes.subarray(0, 16), offset);
  const address = decodeAddress(sockaddr, sockaddrBytes);
  return address.family === 'ipv6' ? address.host : '';
}
