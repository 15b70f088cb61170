// The layout of a link's memory: one region on each side, with two rings and their control words.
// Both sides must agree on it.
//
//   region   | control 1 | control 2 | ring 1 | ring 2 |
//
// Ring 1 is written by the side that dialed, ring 2 by the side that accepted. Each side has both:
// it fills its own copy of the ring that it writes and WRITEs the same bytes to the same place at
// the peer, which reads them there. Where the peer's memory is mapped, the peer's copy is filled in
// place and the own copy is never touched. Positions in a ring count slots, modulo 2^32.
//
//   control  | read position | reader's mode | writer waits | … 64 bytes
//
// Of ring n, the first two stand in the copy of the side that writes it and are written by the side
// that reads it; the third the other way round, and only in shared memory.

import { UsageError } from '../errors.ts';

/**
 * Of regions and records, and of what the kinds of records mean. Peers with another version do not
 * talk.
 */
export const LAYOUT_VERSION = 3;

export const controlWords = { readPosition: 0, readerMode: 1, writerWaits: 2 } as const;
export const CONTROL_WORDS = 3;
const CONTROL_BYTES = 64;

/** What the reader of a ring wants from its writer. */
export const readerModes = {
  /** Notify me whenever there are new records. */
  events: 0,
  /** I poll. */
  polls: 1,
  /** In shared memory: I sleep; wake me, once. */
  sleeps: 2,
} as const;

export interface Geometry {
  readonly slotBytes: number;
  /** Of each ring; a power of two. */
  readonly slots: number;
  /** The longest record. */
  readonly maxRecordSlots: number;
}

/** Where a ring begins: both sides alike. */
export interface RingStart {
  readonly position: number;
  readonly sequence: number;
  /** What the proofs of records are mixed with. */
  readonly salt: number;
}

export const ringStart: RingStart = { position: 0, sequence: 1, salt: 0 };

export type RingNumber = 0 | 1;

/** Throws when the numbers make no ring: they may come from a peer. */
export function checkGeometry({ slotBytes, slots, maxRecordSlots }: Geometry): void {
  const isPower = (value: number): boolean => Number.isInteger(value) && value > 0 && (value & (value - 1)) === 0;
  if (!isPower(slotBytes) || slotBytes < 64 || slotBytes > 4096) {
    throw new UsageError(`slots of ${slotBytes} bytes: expected a power of two from 64 to 4096`);
  }
  if (!isPower(slots) || slots < 16 || slots * slotBytes > 2 ** 30) {
    throw new UsageError(`a ring of ${slots} slots: expected a power of two from 16 slots to 1 GiB`);
  }
  // With a pad before it, a record takes at most a quarter: a reader that holds back an eighth
  // never stops its writer.
  if (!Number.isInteger(maxRecordSlots) || maxRecordSlots < 1 || maxRecordSlots > slots / 8) {
    throw new UsageError(`records of ${maxRecordSlots} slots: expected 1 to an eighth of the ring's ${slots}`);
  }
}

export function regionBytes(geometry: Geometry): number {
  return 2 * CONTROL_BYTES + 2 * geometry.slots * geometry.slotBytes;
}

export function controlOffset(ring: RingNumber): number {
  return ring * CONTROL_BYTES;
}

export function ringOffset(ring: RingNumber, geometry: Geometry): number {
  return 2 * CONTROL_BYTES + ring * geometry.slots * geometry.slotBytes;
}
