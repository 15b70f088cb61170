// The layout of a record: the words of its header, its payload, and what proves that all of it has
// arrived.
//
//   record   | sequence | kind, flags | stream | size | slots | credit | value | proof | payload … | proof |
//
// Words are 32 bits, little-endian. Sequences count records, modulo 2^32; 0 is no sequence. The
// proof is the sequence mixed with the session's salt. The one behind the payload, at the next
// multiple of four, proves that all of the record has arrived; the one at the end of the header
// that all of the header has: in which order the bytes of a WRITE reach memory is the device's
// affair, and a header may be read while it is copied. No program knows the salt, so bytes that a
// program sent in an earlier round never look like a proof.
//
// A record is never wrapped around the end of the ring: a `pad` fills the rest. The first word of
// each slot that no record starts at is 0 by the time the writer may use it: the reader clears it
// before it gives the slot back. So bytes of a program that are left from an earlier round are
// never taken for a record.

export const recordKinds = {
  /** Fills the ring to its end. */
  pad: 1,
  /**
   * A client connects: the payload is that of open-record.ts; credit is how much the other side may
   * send.
   */
  open: 2,
  /** The server accepted; credit as in `open`. */
  opened: 3,
  /** The server could not be reached; value is the errno. */
  refused: 4,
  data: 5,
  /** No more data will come. */
  shut: 6,
  /** The stream is over, both ways. What came before is still delivered. */
  reset: 7,
  /**
   * More may be sent: credit says how far, counted from the stream's start, modulo 2^32. Of a
   * direct stream: the program has read up to this position, modulo 2^31.
   */
  credit: 8,
  /**
   * Value comes back in a `pong`. A credit, of 0, says that memory is short: idle streams are to
   * give theirs back.
   */
  ping: 9,
  pong: 10,
  /** Opens a direct stream: the payload is the key of its connection. */
  openDirect: 11,
  /**
   * A program's ring begins: value is the low half of the position, the payload the high one.
   */
  from: 12,
  /** Words of a slot: value has flags of `mirrorWords`. */
  mirror: 13,
  /** Credit that is not used is given back: value bytes of it. Not of a direct stream. */
  returned: 14,
} as const;

export const MAX_KIND = recordKinds.returned;

/** Of a credit of a direct stream: a small integer, for which nothing is allocated. */
export const CREDIT_MASK = 0x7fff_ffff;

/** What the program of one side has said in its slot, for that of the other. Each comes once. */
export const mirrorWords = {
  /** It looks into its incoming ring, so the other one may begin to write there. */
  looks: 1,
  /** It has noticed where that ring begins. */
  seen: 2,
  /** It reads no more of that ring; the credit that comes with this is where it stopped. */
  stop: 4,
  /** It has closed the connection. */
  gone: 8,
  /** It writes no more into its outgoing ring: what it writes comes by TCP. */
  stopped: 16,
  /** It was killed, and all that its ring had has come. */
  ended: 32,
} as const;

export const ALL_MIRROR_WORDS = 63;

/** The record's credit counts: it may come with any record of a stream. */
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
  proof: 7,
} as const;

export const HEADER_BYTES = 32;
const PROOF_BYTES = 4;

/** Slots of a record with so much payload. */
export function slotsFor(sizeBytes: number, slotBytes: number): number {
  return Math.ceil((HEADER_BYTES + alignUp(sizeBytes) + PROOF_BYTES) / slotBytes);
}

/** The most payload that fits into so many slots. */
export function payloadOf(slots: number, slotBytes: number): number {
  return slots * slotBytes - HEADER_BYTES - PROOF_BYTES;
}

/** Where the proof behind the payload stands, from the start of the record. */
export function proofOffset(sizeBytes: number): number {
  return HEADER_BYTES + alignUp(sizeBytes);
}

function alignUp(sizeBytes: number): number {
  return (sizeBytes + 3) & ~3;
}

/**
 * What stands at the end of a header and of a record: never 0, which is what cleared memory has
 * there.
 */
export function proofOf(sequence: number, salt: number): number {
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
