// Socket addresses: text and ports to the kernel's sockaddr bytes and back.

import { isIPv4, isIPv6, SocketAddress } from 'node:net';
import { UsageError } from '../errors.ts';

export type Address =
  | { readonly family: 'ipv4'; readonly host: string; readonly port: number }
  | { readonly family: 'ipv6'; readonly host: string; readonly port: number; readonly scope?: number }
  /** A path, or a name in the abstract namespace when it starts with NUL. Empty: unnamed. */
  | { readonly family: 'unix'; readonly path: string };

export type Family = Address['family'];

/** <sys/socket.h>: AF_UNIX, AF_INET, AF_INET6. */
export const familyNumbers: Readonly<Record<Family, number>> = { unix: 1, ipv4: 2, ipv6: 10 };

/** Room for any address: sizeof(struct sockaddr_storage). */
export const ADDRESS_BYTES = 128;

const UNIX_PATH_BYTES = 108;
// <linux/in.h>, <linux/in6.h>: family (host order), port (network order), …
const INET_BYTES = 16;
const INET6_BYTES = 28;
const ZERO = '0'.charCodeAt(0);

/** An IP address and port, the family told from the text. */
export function ip(host: string, port: number): Address {
  if (isIPv4(host)) return { family: 'ipv4', host, port };
  if (isIPv6(host)) return { family: 'ipv6', host, port };
  throw new UsageError(`'${host}' is not an IP address`);
}

export function encodeAddress(address: Address): Uint8Array {
  if (address.family === 'unix') return encodeUnix(address.path);
  const bytes = new Uint8Array(address.family === 'ipv4' ? INET_BYTES : INET6_BYTES);
  fillInet(bytes, address);
  return bytes;
}

const inet = new Uint8Array(new ArrayBuffer(INET_BYTES));
const inet6 = new Uint8Array(new ArrayBuffer(INET6_BYTES));

/**
 * As encodeAddress, good until the next call: to make a buffer that native code can see takes
 * longer than a bind.
 */
export function encodeOnce(address: Address): Uint8Array {
  if (address.family === 'unix') return encodeUnix(address.path);
  const bytes = address.family === 'ipv4' ? inet : inet6;
  fillInet(bytes, address);
  return bytes;
}

function fillInet(bytes: Uint8Array, address: Exclude<Address, { family: 'unix' }>): void {
  const { host, port } = address;
  if (!Number.isInteger(port) || port < 0 || port > 65535) throw new UsageError(`port ${port}: expected 0 to 65535`);
  bytes.fill(0);
  bytes[0] = familyNumbers[address.family];
  bytes[2] = port >>> 8;
  bytes[3] = port & 255;
  if (address.family === 'ipv4') {
    if (!isIPv4(host)) throw new UsageError(`'${host}' is not an IPv4 address`);
    let at = 4;
    for (let index = 0; index < host.length; index++) {
      const digit = host.charCodeAt(index) - ZERO;
      if (digit < 0) at++;
      else bytes[at] = bytes[at] * 10 + digit;
    }
    return;
  }
  if (!isIPv6(host) || host.includes('%')) throw new UsageError(`'${host}' is not an IPv6 address`);
  bytes.set(ipv6Bytes(host), 8);
  new DataView(bytes.buffer).setUint32(24, address.scope ?? 0, true);
}

/** `size` is what the kernel said it wrote. */
export function decodeAddress(bytes: Uint8Array, size: number): Address {
  if (size >= INET_BYTES && bytes.byteLength >= INET_BYTES && bytes[0] === familyNumbers.ipv4 && bytes[1] === 0) {
    const host = `${bytes[4]}.${bytes[5]}.${bytes[6]}.${bytes[7]}`;
    return { family: 'ipv4', host, port: (bytes[2] << 8) | bytes[3] };
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, Math.min(size, bytes.byteLength));
  const family = view.byteLength >= 2 ? view.getUint16(0, true) : -1;
  if (family === familyNumbers.unix) return { family: 'unix', path: unixPath(bytes.subarray(2, view.byteLength)) };
  if (family === familyNumbers.ipv6 && view.byteLength >= INET6_BYTES) {
    const host = ipv6Text(new DataView(view.buffer, view.byteOffset + 8, 16));
    const scope = view.getUint32(24, true);
    const port = view.getUint16(2);
    return scope === 0 ? { family: 'ipv6', host, port } : { family: 'ipv6', host, port, scope };
  }
  throw new UsageError(`an address of family ${family} and ${size} bytes is not supported`);
}

export function formatAddress(address: Address): string {
  switch (address.family) {
    case 'unix':
      return address.path === '' ? 'unix:(unnamed)' : `unix:${address.path.replace('\0', '@')}`;
    case 'ipv4':
      return `${address.host}:${address.port}`;
    case 'ipv6':
      return `[${address.host}]:${address.port}`;
  }
}

/** Of an address in one number, its first byte the highest. */
export function ipv4Text(word: number): string {
  return `${word >>> 24}.${(word >>> 16) & 255}.${(word >>> 8) & 255}.${word & 255}`;
}

function encodeUnix(path: string): Uint8Array {
  const name = new TextEncoder().encode(path);
  // A path ends with NUL; an abstract name starts with one and ends with the address.
  const isAbstract = path.startsWith('\0');
  if (path.indexOf('\0', 1) > 0) throw new UsageError('a unix socket path must not contain NUL');
  const limit = isAbstract ? UNIX_PATH_BYTES : UNIX_PATH_BYTES - 1;
  if (name.length > limit)
    throw new UsageError(`unix socket path of ${name.length} bytes: at most ${limit} ('${path}')`);
  const bytes = new Uint8Array(2 + name.length + (isAbstract ? 0 : 1));
  new DataView(bytes.buffer).setUint16(0, familyNumbers.unix, true);
  bytes.set(name, 2);
  return bytes;
}

function unixPath(name: Uint8Array): string {
  if (name.length === 0) return '';
  if (name[0] === 0) return name.length === 1 ? '' : new TextDecoder().decode(name);
  const end = name.indexOf(0);
  return new TextDecoder().decode(end < 0 ? name : name.subarray(0, end));
}

function ipv6Bytes(host: string): Uint8Array {
  const bytes = new Uint8Array(16);
  const view = new DataView(bytes.buffer);
  // Node's SocketAddress puts the text in canonical form, in which a dotted tail can only follow
  // ::ffff:.
  const canonical = new SocketAddress({ address: host, family: 'ipv6' }).address;
  const dotted = /^(.*:)(\d+)\.(\d+)\.(\d+)\.(\d+)$/.exec(canonical);
  const text =
    dotted === null ? canonical : `${dotted[1]}${hexPair(dotted[2], dotted[3])}:${hexPair(dotted[4], dotted[5])}`;
  const [head, tail] = text.split('::');
  const front = groups(head);
  const back = groups(tail);
  for (const [index, value] of front.entries()) view.setUint16(index * 2, value);
  for (const [index, value] of back.entries()) view.setUint16(16 - (back.length - index) * 2, value);
  return bytes;
}

function groups(text: string | undefined): number[] {
  return text === undefined || text === '' ? [] : text.split(':').map((group) => Number.parseInt(group, 16));
}

function hexPair(high: string | undefined, low: string | undefined): string {
  return ((Number(high) << 8) | Number(low)).toString(16);
}

function ipv6Text(view: DataView): string {
  const text = Array.from({ length: 8 }, (_, index) => view.getUint16(index * 2).toString(16)).join(':');
  return new SocketAddress({ address: text, family: 'ipv6' }).address;
}
