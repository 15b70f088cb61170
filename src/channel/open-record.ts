// The payload of an OPEN: the client's IP endpoint and the one that it connected to, sixteen bytes
// of address and a port each.

import type { Address } from '../native/index.ts';
import { addressOf, endpointOf, type IpEndpoint } from '../steering/index.ts';

const ENDPOINT_WORDS = 5;
const PORT_WORD = 4;
const MAX_PORT = 65_535;
export const OPEN_PAYLOAD_BYTES = 2 * ENDPOINT_WORDS * 4;

interface OpenPayload {
  readonly client: Address;
  /** The destination as the client sees it. */
  readonly original: Address;
}

/** Writes it at an offset in bytes. */
export function writeOpen(buffer: ArrayBufferLike, offset: number, { client, original }: OpenPayload): void {
  const words = new Uint32Array(buffer, offset, 2 * ENDPOINT_WORDS);
  for (const [index, { address, port }] of [endpointOf(client), endpointOf(original)].entries()) {
    words.set(address, index * ENDPOINT_WORDS);
    words[index * ENDPOINT_WORDS + PORT_WORD] = port;
  }
}

/**
 * Reads it, or says what is wrong with it. The peer can write there at any time: each word is read
 * once.
 */
export function readOpen(words: Uint32Array, offset: number): OpenPayload | string {
  const client = endpointAt(words, offset / 4);
  const original = endpointAt(words, offset / 4 + ENDPOINT_WORDS);
  const port = Math.max(client.port, original.port);
  if (port > MAX_PORT) return `port ${port}`;
  return { client: addressOf(client), original: addressOf(original) };
}

function endpointAt(words: Uint32Array, at: number): IpEndpoint {
  const [a, b, c, d, port] = words.subarray(at, at + ENDPOINT_WORDS);
  return { address: [a, b, c, d], port };
}
