// Messages of two processes beside the rings: 64 bytes each on a unix socket, some with
// descriptors.

import { read64, write64 } from '../../verbs/index.ts';

export const MESSAGE_BYTES = 64;
const MAGIC = 0x314d_524d; // "MRM1"

const kinds = { ask: 1, grant: 2, refuse: 3 } as const;

/**
 * After the hellos: asking for a region's memory, and the answers. A grant comes with two
 * descriptors: memory and doorbell.
 */
export type ShmMessage =
  | { readonly kind: 'ask'; readonly rkey: number }
  | {
      readonly kind: 'grant';
      readonly rkey: number;
      readonly access: number;
      readonly address: number;
      readonly sizeBytes: number;
    }
  | { readonly kind: 'refuse'; readonly rkey: number };

export function encodeMessage(message: ShmMessage): Uint8Array {
  const words = new Uint32Array(MESSAGE_BYTES / 4);
  words[0] = MAGIC;
  words[1] = kinds[message.kind];
  words[2] = message.rkey;
  if (message.kind === 'grant') {
    words[3] = message.access;
    write64(words, 4, message.address);
    write64(words, 6, message.sizeBytes);
  }
  return new Uint8Array(words.buffer);
}

/** Undefined when these bytes are no message. */
export function decodeMessage(bytes: Uint8Array, size: number): ShmMessage | undefined {
  if (size !== MESSAGE_BYTES) return undefined;
  const words = new Uint32Array(bytes.slice(0, MESSAGE_BYTES).buffer);
  const [magic, kind, rkey, access] = words;
  if (magic !== MAGIC) return undefined;
  if (kind === kinds.ask) return { kind: 'ask', rkey };
  if (kind === kinds.refuse) return { kind: 'refuse', rkey };
  const [address, sizeBytes] = [read64(words, 4), read64(words, 6)];
  if (kind !== kinds.grant || !Number.isSafeInteger(address) || !Number.isSafeInteger(sizeBytes)) return undefined;
  return { kind: 'grant', rkey, access, address, sizeBytes };
}
