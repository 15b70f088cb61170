// The ring that the peer writes: each record is copied out and checked in full before it is used.

import { loadAcquire, type SharedMemory } from '../native/index.ts';
import {
  FLAG_CREDIT,
  HEADER_BYTES,
  MAX_KIND,
  nextSequence,
  proofOf,
  proofOffset,
  recordKinds,
  recordWords,
  slotsFor,
} from './record-layout.ts';
import { type Geometry, type RingNumber, ringOffset, ringStart } from './region-layout.ts';

/** Of `IncomingRing.next`. */
export const nexts = { nothing: 0, record: 1, broken: 2 } as const;

export class IncomingRing {
  readonly memory: SharedMemory;
  readonly number: RingNumber;
  readonly geometry: Geometry;
  readonly #words: Uint32Array;
  readonly #base: number;
  readonly #mask: number;
  readonly #slotWords: number;
  readonly #salt: number;
  #sequence: number;
  /** Up to here records were read, */
  #cursor: number;
  /** and up to here their slots were given back. */
  #position: number;

  // The header of the record that `next` found: copied, because the peer may change the ring at any
  // time.
  kind = 0;
  stream = 0;
  size = 0;
  /** Negative: none. */
  credit = -1;
  value = 0;
  /** In `memory`. */
  payloadOffset = 0;
  /** Why it is broken. */
  problem = '';

  constructor(geometry: Geometry, number: RingNumber, own: SharedMemory, start = ringStart) {
    this.#salt = start.salt;
    this.#sequence = start.sequence;
    this.#cursor = start.position;
    this.#position = start.position;
    this.memory = own;
    this.number = number;
    this.geometry = geometry;
    this.#words = new Uint32Array(own.buffer);
    this.#base = ringOffset(number, geometry);
    this.#mask = geometry.slots - 1;
    this.#slotWords = geometry.slotBytes >>> 2;
  }

  /** Slots given back since the start. */
  get position(): number {
    return this.#position;
  }

  /** Slots read since the start. */
  get cursor(): number {
    return this.#cursor;
  }

  get sequence(): number {
    return this.#sequence;
  }

  /** Whether the next record has begun to arrive. */
  get hasNext(): boolean {
    // Partner: OutgoingRing.#publish. For CoherentNotifier this load comes after its store of
    // `sleeps`.
    return loadAcquire(this.#words, (this.#base >>> 2) + (this.#cursor & this.#mask) * this.#slotWords) !== 0;
  }

  /** Reads the next record. Its payload stays where it is until `release`. */
  next(): number {
    const words = this.#words;
    // All of the ring was read and nothing given back: the record that stands there is the first of
    // these, not the next one.
    if ((this.#cursor - this.#position) >>> 0 === this.geometry.slots) return nexts.nothing;
    const start = (this.#base >>> 2) + (this.#cursor & this.#mask) * this.#slotWords;
    // Partner: OutgoingRing.#publish, in the peer's process or by way of the wire.
    const sequence = loadAcquire(words, start);
    if (sequence === 0) return nexts.nothing;
    // A header that is still being copied into our memory cannot be judged, not even by its
    // sequence. Partner: OutgoingRing.commit, which writes both proofs before the sequence; on a
    // wire they arrive in any order, hence two loads of their own.
    const whole = proofOf(sequence, this.#salt);
    if (loadAcquire(words, start + recordWords.proof) !== whole) return nexts.nothing;
    if (sequence !== this.#sequence) return this.#broken(`record ${sequence} where ${this.#sequence} is due`);
    const kindAndFlags = words[start + recordWords.kind];
    const kind = kindAndFlags & 0xff;
    const size = words[start + recordWords.size];
    const slots = words[start + recordWords.slots];
    const { slots: ringSlots, maxRecordSlots, slotBytes } = this.geometry;
    const toEnd = ringSlots - (this.#cursor & this.#mask);
    if (kind === 0 || kind > MAX_KIND || kindAndFlags >>> 9 !== 0) return this.#broken(`a record of kind ${kind}`);
    const isPad = kind === recordKinds.pad;
    if (isPad ? slots !== toEnd || size !== 0 : slots < 1 || slots > maxRecordSlots || slots > toEnd) {
      return this.#broken(`a record of ${slots} slots, ${toEnd} before the end of the ring`);
    }
    if (size > slots * slotBytes || (!isPad && slotsFor(size, slotBytes) !== slots)) {
      return this.#broken(`${size} bytes in ${slots} slots`);
    }
    const trailer = loadAcquire(words, start + (proofOffset(size) >>> 2));
    if (trailer !== whole) return nexts.nothing;
    this.kind = kind;
    this.stream = words[start + recordWords.stream];
    this.size = size;
    this.credit = (kindAndFlags >>> 8) & FLAG_CREDIT ? words[start + recordWords.credit] : -1;
    this.value = words[start + recordWords.value];
    this.payloadOffset = start * 4 + HEADER_BYTES;
    this.#cursor = (this.#cursor + slots) >>> 0;
    this.#sequence = nextSequence(sequence);
    return nexts.record;
  }

  /** Gives back the slots of all records that were read: nobody needs their payload any more. */
  release(): void {
    const words = this.#words;
    const base = this.#base >>> 2;
    const end = this.#cursor;
    // Plain stores are enough: the peer uses these slots only after Indexer.publish, whose store
    // comes later and is a release.
    for (let at = this.#position; at !== end; at = (at + 1) >>> 0)
      words[base + (at & this.#mask) * this.#slotWords] = 0;
    this.#position = end;
  }

  /**
   * Clears the ring before the peer sends again what was not read. All of it, and not only where
   * records begin: the proof of a record that came before would make the same record look whole
   * while it arrives again.
   */
  wipe(): void {
    this.#words.fill(0, this.#base >>> 2, (this.#base >>> 2) + this.geometry.slots * this.#slotWords);
  }

  #broken(problem: string): number {
    this.problem = problem;
    return nexts.broken;
  }
}
