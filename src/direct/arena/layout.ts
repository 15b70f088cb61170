// The layout of an arena: direct/layout.h says the same in C, and src/direct/layout.test.ts
// compares them.

/** struct mr_arena: two doorbells, the slots, and from RINGS_OFFSET on the rings. */
export const SLOTS = 64;
export const SLOTS_OFFSET = 256;
export const SLOT_BYTES = 256;
export const RINGS_OFFSET = 64 * 1024;

/** Words of struct mr_arena and its flows, as offsets in bytes. */
export const DOORBELL_BYTES = 128;
export const doorbellWords = { ready: 0, asleep: 64 } as const;
export const FLOW_BYTES = 128;
export const flowWords = {
  written: 0,
  base: 4,
  from: 8,
  until: 16,
  wantsRoom: 24,
  isShut: 28,
  wantsBack: 32,
  isLost: 36,
  read: 64,
  looks: 68,
  isGone: 72,
} as const;

/** enum mr_lost: why no more bytes come by a ring, in its word `isLost`. */
export const lostWords = {
  lost: 1,
  /** TCP alone is faster for what the connection moves. */
  bulk: 2,
} as const;

export type LostWord = (typeof lostWords)[keyof typeof lostWords];

/** Where the two rings of a slot start; they lie side by side. */
export function ringsOffset(slot: number, ringBytes: number): number {
  return RINGS_OFFSET + 2 * slot * ringBytes;
}

export function arenaBytes(ringBytes: number): number {
  return ringsOffset(SLOTS, ringBytes);
}
