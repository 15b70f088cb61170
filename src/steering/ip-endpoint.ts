// Addresses as the BPF programs keep them: always sixteen bytes, IPv4 mapped into IPv6, with the
// port beside.

import { isIPv4, isIPv6 } from 'node:net';
import { UsageError } from '../errors.ts';
import { type Address, decodeAddress, encodeAddress, ip, ipv4Text } from '../native/index.ts';
import { IP_ENDPOINT_BYTES, type IpEndpoint, writeIpEndpoint } from './layouts.ts';

const IPV6_OFFSET = 8;
const SOCKADDR_IN6_BYTES = 28;
const MAPPED_WORD = 0xffff_0000; // 00 00 ff ff, read as a little-endian word

/**
 * Hosts come again and again, a few for each connection: to read one takes longer than a system
 * call.
 */
const known = new Map<string, readonly number[]>();
const MAX_KNOWN = 4096;

/** The words of an address as they stand in memory. */
export function addressWords(host: string): readonly number[] {
  let words = known.get(host);
  if (words === undefined) {
    words = readWords(host);
    if (known.size === MAX_KNOWN) known.clear();
    known.set(host, words);
  }
  return words;
}

function readWords(host: string): readonly number[] {
  const text = isIPv4(host) ? `::ffff:${host}` : host;
  if (!isIPv6(text)) throw new UsageError(`'${host}' is not an IP address`);
  const bytes = encodeAddress({ family: 'ipv6', host: text, port: 0 }).slice(IPV6_OFFSET, IPV6_OFFSET + 16);
  return [...new Uint32Array(bytes.buffer)];
}

export function endpointOf(address: Address): IpEndpoint {
  if (address.family === 'unix') throw new UsageError('a unix socket has no endpoint');
  return { address: addressWords(address.host), port: address.port };
}

export function isMapped(words: readonly number[]): boolean {
  return words[0] === 0 && words[1] === 0 && words[2] === MAPPED_WORD;
}

/** The bytes of a word in the other order. */
function swapped(word: number): number {
  return (((word & 0xff) << 24) | ((word & 0xff00) << 8) | ((word >>> 8) & 0xff00) | (word >>> 24)) >>> 0;
}

/** The other way round, of IPv4 only: by the word as it stands in memory. */
const texts = new Map<number, string>();

function mappedText(word: number): string {
  let text = texts.get(word);
  if (text === undefined) {
    text = ipv4Text(swapped(word));
    if (texts.size === MAX_KNOWN) texts.clear();
    texts.set(word, text);
  }
  return text;
}

export function hostOf(words: readonly number[]): string {
  if (isMapped(words)) return mappedText(words[3]);
  const bytes = new Uint8Array(new Uint32Array(words).buffer);
  const sockaddr = new Uint8Array(SOCKADDR_IN6_BYTES);
  sockaddr[0] = 10;
  sockaddr.set(bytes, IPV6_OFFSET);
  const address = decodeAddress(sockaddr, SOCKADDR_IN6_BYTES);
  return address.family === 'ipv6' ? address.host : '';
}

export function addressOf(endpoint: IpEndpoint): Address {
  const { address, port } = endpoint;
  if (isMapped(address)) return { family: 'ipv4', host: mappedText(address[3]), port };
  return ip(hostOf(endpoint.address), endpoint.port);
}

/** An address as all daemons write it; IPv4 in IPv6 is IPv4. */
export function canonicalHost(host: string): string {
  return hostOf(addressWords(host));
}

/** As keys of maps. */
export function endpointBytes(endpoint: IpEndpoint): Uint8Array {
  const bytes = new Uint8Array(IP_ENDPOINT_BYTES);
  writeIpEndpoint(new DataView(bytes.buffer), 0, endpoint);
  return bytes;
}

export function formatIpEndpoint(endpoint: IpEndpoint): string {
  const host = hostOf(endpoint.address);
  return host.includes(':') ? `[${host}]:${endpoint.port}` : `${host}:${endpoint.port}`;
}

/** `10.0.0.1:80` or `[fd00::1]:80`. */
export function parseIpEndpoint(text: string): IpEndpoint {
  const match = /^(?:\[([0-9a-fA-F:.]+)\]|([0-9.]+)):(\d{1,5})$/.exec(text);
  const port = Number(match?.[3]);
  if (match === null || port < 1 || port > 65_535) {
    throw new UsageError(`'${text}' is no address and port, as 10.0.0.1:80 or [fd00::1]:80`);
  }
  return { address: addressWords(match[1] ?? match[2] ?? ''), port };
}
