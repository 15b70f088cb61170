// Networks in rules: an address and how many of its bits count.

import { isIPv4, isIPv6 } from 'node:net';
import { UsageError } from '../errors.ts';
import { addressWords, hostOf, isMapped } from './ip-endpoint.ts';

export interface Network {
  readonly address: readonly number[];
  readonly mask: readonly number[];
}

const nothing = [0, 0, 0, 0];
/** Matches every address of both families. */
export const everywhere: Network = { address: nothing, mask: nothing };

/** `10.0.0.0/8`, `fd00::/8`, one address, or `any`. */
export function parseNetwork(text: string): Network {
  if (text === 'any') return everywhere;
  const [host = '', bitsText, ...rest] = text.split('/');
  const width = isIPv4(host) ? 32 : 128;
  const bits = bitsText === undefined ? width : Number(bitsText);
  const isFine =
    (isIPv4(host) || isIPv6(host)) && rest.length === 0 && /^\d{0,3}$/.test(bitsText ?? '') && bits <= width;
  if (!isFine || bitsText === '') {
    throw new UsageError(`'${text}' is no network, as 10.0.0.0/8 or fd00::/8; 'any' stands for all`);
  }
  const mask = maskWords(bits + 128 - width);
  return { address: addressWords(host).map((word, index) => (word & mask[index]) >>> 0), mask };
}

export function formatNetwork({ address, mask }: Network): string {
  const bits = mask.reduce((sum, word) => sum + word.toString(2).replaceAll('0', '').length, 0);
  if (bits === 0) return 'any';
  const host = hostOf(address);
  const isV4 = isMapped(address) && bits >= 96;
  const [shown, width] = isV4 ? [bits - 96, 32] : [bits, 128];
  return shown === width ? host : `${host}/${shown}`;
}

export function isInNetwork(words: readonly number[], { address, mask }: Network): boolean {
  return address.every((word, index) => (words[index] & mask[index]) >>> 0 === word);
}

/** The first `bits` of sixteen bytes set, as words in memory. */
function maskWords(bits: number): readonly number[] {
  const bytes = new Uint8Array(16);
  for (let bit = 0; bit < bits; bit++) bytes[bit >> 3] |= 0x80 >> (bit & 7);
  return [...new Uint32Array(bytes.buffer)];
}
