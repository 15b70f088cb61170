// The layout of a channel's memory: one region on each side, and the records in its rings. Both sides must agree on it.
//
//   region   | control 1 | control 2 | ring 1 | ring 2 |
//
// Ring 1 is written by the side that called, ring 2 by the side that answered. Each side has both: it fills its own copy
// of the ring that it writes and WRITEs the same bytes to the same place at the peer, who reads them there. Where the
// peer's memory is mapped, the peer's copy is filled in place and the own copy is never touched.
//
//   control  | read position | reader's mode | writer waits | … 64 bytes
//
// Of ring n, the first two stand in the copy of the side that writes it and are written by the side that reads it; the third
// the other way round, and only in shared memory.
//
//   record   | sequence | kind, flags | stream | size | slots | credit | value | sequence ^ salt | payload … | sequence ^ salt |
//
// Words are 32 bits, little-endian. Positions count slots and sequences count records, both modulo 2^32; 0 is no sequence.
// The trailing sequence stands behind the payload, at the next multiple of four: it proves that all of the record has
// arrived, and the one at the end of the header that all of the header has: how a WRITE comes into memory is the device's
// affair, and a header may be seen while it is copied. Both are mixed with the session's salt, which no program knows: bytes
// that one has sent in an earlier round never look like it. A record is never wrapped around the end of the ring: a `pad` fills the rest.
//
// The first word of each slot that no record starts at is 0 by the time the writer may use it: the reader clears it before it
// gives the slot back. So bytes of a program that are left from an earlier round are never taken for a record.

import { UsageError } from '../errors.ts';

/** Of this file and of what the kinds mean. Peers with another one do not talk. */
export const LAYOUT_VERSION = 2;

export const recordKinds = {
  /** Fills the ring to its end. */
  pad: 1,
  /** A program calls: payload is `openPayload`; credit is what the caller lets the other side send. */
  open: 2,
  /** The server answered; credit as in `open`. */
  opened: 3,
  /** The server did not; value is the errno. */
  refused: 4,
  data: 5,
  /** No more data will come. */
  shut: 6,
  /** The stream is over, both ways. What came before is still delivered. */
  reset: 7,
  /** More may be sent: credit says how far, counted from the stream's start, modulo 2^32. */
  credit: 8,
  /** Value comes back in a `pong`. */
  ping: 9,
  pong: 10,
} as const;

export const MAX_KIND = recordKinds.pong;

/** The record's credit is meant: it may come with any record of a stream. */
export const FLAG_CREDIT = 1;

/** Words of a record's header. */
export const recordWords = {
  sequence: 0,
  kind: 1,
  stream: 2,
  size: 3,
  slots: 4,
  credit: 5,
  value: 6,
  /** As the trailing sequence. */
  check: 7,
} as const;

export const HEADER_BYTES = 32;
export const TRAILER_BYTES = 4;
/** Two addresses of sixteen bytes with a port each: the calling program's, and the one it called. */
export const OPEN_PAYLOAD_BYTES = 40;
export const OPEN_ENDPOINT_WORDS = 5;

export const controlWords = { readPosition: 0, readerMode: 1, writerWaits: 2 } as const;
export const CONTROL_WORDS = 3;
export const CONTROL_BYTES = 64;

/** What the reader of a ring wants from its writer. */
export const readerModes = {
  /** Tell me whenever there is something new. */
  events: 0,
  /** I look by myself. */
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
  /** What trailing sequences are mixed with. */
  readonly salt: number;
}

export const ringStart: RingStart = { position: 0, sequence: 1, salt: 0 };

export const ringNumbers = [0, 1] as const;
export type RingNumber = (typeof ringNumbers)[number];

/** Throws when the numbers make no ring: they may come from a peer. */
export function checkGeometry({ slotBytes, slots, maxRecordSlots }: Geometry): void {
  const isPower = (value: number): boolean => Number.isInteger(value) && value > 0 && (value & (value - 1)) === 0;
  if (!isPower(slotBytes) || slotBytes < 64 || slotBytes > 4096) {
    throw new UsageError(`slots of ${slotBytes} bytes: expected a power of two from 64 to 4096`);
  }
  if (!isPower(slots) || slots < 16 || slots * slotBytes > 2 ** 30) {
    throw new UsageError(`a ring of ${slots} slots: expected a power of two from 16 slots to 1 GiB`);
  }
  // With a pad before it, a record takes at most a quarter: a reader that holds back an eighth never stops its writer.
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

/** Slots of a record with so much payload. */
export function slotsFor(sizeBytes: number, slotBytes: number): number {
  return Math.ceil((HEADER_BYTES + alignUp(sizeBytes) + TRAILER_BYTES) / slotBytes);
}

/** The most payload that fits into so many slots. */
export function payloadOf(slots: number, slotBytes: number): number {
  return slots * slotBytes - HEADER_BYTES - TRAILER_BYTES;
}

/** Where the trailing sequence stands, from the start of the record. */
export function trailerOffset(sizeBytes: number): number {
  return HEADER_BYTES + alignUp(sizeBytes);
}

function alignUp(sizeBytes: number): number {
  return (sizeBytes + 3) & ~3;
}

/** What stands at the end of a header and of a record: never 0, which is what cleared memory has there. */
export function trailerOf(sequence: number, salt: number): number {
  return (sequence ^ salt) >>> 0 || 1;
}

/** The sequence after this one. */
export function nextSequence(sequence: number): number {
  return sequence === 0xffff_ffff ? 1 : sequence + 1;
}

/** The sequence so many records earlier. */
export function sequenceBefore(sequence: number, count: number): number {
  return ((sequence - 1 - count + 0xffff_ffff) % 0xffff_ffff) + 1;
}
