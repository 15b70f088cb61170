// The script of a connection, as steps that both ends know in advance: it follows from the
// behaviour and a seed.

import { Random } from '../worlds/index.ts';

export const behaviours = [
  'bulk',
  'pingPong',
  'short',
  'halfClose',
  'slowReader',
  'idle',
  'resetByClient',
  'resetByServer',
  'connectAndClose',
  'abort',
] as const;

export type Behaviour = (typeof behaviours)[number];
export type End = 'client' | 'server';

export type Step =
  /** `paceMs`: how long the reader pauses after every READ_BYTES. */
  | { readonly what: 'send'; readonly by: End; readonly bytes: number; readonly paceMs?: number }
  /** Both ends send at the same time. */
  | { readonly what: 'exchange'; readonly bytes: Readonly<Record<End, number>> }
  /**
   * Shuts down its sending side; the other end must see the end of the stream, and no bytes before
   * it.
   */
  | { readonly what: 'shut'; readonly by: End }
  /** Sends, then resets: the other end gets a part of the bytes, and the reset. */
  | { readonly what: 'reset'; readonly by: End; readonly bytes: number }
  /**
   * Reads a part of what the other end sends, then resets: the other end gets the reset while it
   * sends.
   */
  | { readonly what: 'abort'; readonly by: End; readonly partBytes: number; readonly bytes: number }
  | { readonly what: 'rest'; readonly ms: number };

const KIB = 1024;
const MIB = 1024 * KIB;
const both: readonly Step[] = [
  { what: 'shut', by: 'client' },
  { what: 'shut', by: 'server' },
];

export function scriptOf(behaviour: Behaviour, seed: number): readonly Step[] {
  const random = new Random(seed);
  const send = (by: End, least: number, most: number): Step => ({ what: 'send', by, bytes: random.size(least, most) });
  const asked = (): readonly Step[] => [send('client', 1, 2000), send('server', 1, 8 * KIB)];
  switch (behaviour) {
    case 'bulk': {
      const bytes = { client: random.size(256 * KIB, 6 * MIB), server: random.size(256 * KIB, 6 * MIB) };
      return [{ what: 'exchange', bytes }, ...both];
    }
    case 'pingPong': {
      const rounds = Array.from({ length: random.between(20, 200) }, () => [
        send('client', 1, 32 * KIB),
        send('server', 1, 32 * KIB),
      ]);
      return [...rounds.flat(), ...both];
    }
    case 'short':
      return [...asked(), ...both];
    case 'halfClose':
      return [
        send('client', 1, MIB),
        { what: 'shut', by: 'client' },
        send('server', 1, 2 * MIB),
        { what: 'shut', by: 'server' },
      ];
    case 'slowReader': {
      const by = random.pick<End>(['client', 'server']);
      const slow: Step = { what: 'send', by, bytes: random.size(MIB, 4 * MIB), paceMs: random.between(10, 60) };
      return [slow, ...both];
    }
    case 'idle':
      return [...asked(), { what: 'rest', ms: random.between(500, 5000) }, ...asked(), ...both];
    case 'resetByClient':
      return [...asked(), { what: 'reset', by: 'client', bytes: random.size(1, MIB) }];
    case 'resetByServer':
      return [...asked(), { what: 'reset', by: 'server', bytes: random.size(1, MIB) }];
    case 'connectAndClose':
      return both;
    case 'abort': {
      // More than the buffers between the two ends hold.
      const bytes = 64 * MIB;
      const by = random.pick<End>(['client', 'server']);
      return [...asked(), { what: 'abort', by, partBytes: random.size(1, 2 * MIB), bytes }];
    }
  }
}

/** The client sends it first, so that the server knows the script. */
export const HEADER_BYTES = 8;

export function encodeHeader(behaviour: Behaviour, seed: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32LE(behaviours.indexOf(behaviour), 0);
  header.writeUInt32LE(seed, 4);
  return header;
}

/** Null when it is no header. */
export function decodeHeader(header: Buffer): { readonly behaviour: Behaviour; readonly seed: number } | null {
  const behaviour = behaviours[header.readUInt32LE(0)];
  return behaviour === undefined ? null : { behaviour, seed: header.readUInt32LE(4) };
}
