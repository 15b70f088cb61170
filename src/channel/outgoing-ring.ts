// The ring that this side writes: records are reserved, filled in place, and committed in order.

import { copyMemory, loadAcquire, type SharedMemory, storeRelease } from '../native/index.ts';
import {
  FLAG_CREDIT,
  HEADER_BYTES,
  nextSequence,
  payloadOf,
  proofOf,
  proofOffset,
  recordKinds,
  recordWords,
  sequenceBefore,
  slotsFor,
} from './record-layout.ts';
import { controlOffset, controlWords, type Geometry, type RingNumber, ringOffset, ringStart } from './region-layout.ts';

/** Below this much room before the end of the ring, a record of data starts at the beginning. */
const SHORT_END_BYTES = 16 * 1024;

export class OutgoingRing {
  readonly geometry: Geometry;
  readonly number: RingNumber;
  /** Where the bytes go: the peer's region where it is mapped, else our own. */
  #memory: SharedMemory;
  #words: Uint32Array;
  /** Control words in our own region: the peer writes there how far it has read. */
  readonly #control: Uint32Array;
  readonly #base: number;
  readonly #mask: number;
  readonly #slotBytes: number;
  readonly #salt: number;
  #position: number;
  #sequence: number;
  /** The last read position of the peer that was checked. */
  #peerPosition: number;

  constructor(geometry: Geometry, number: RingNumber, own: SharedMemory, start = ringStart) {
    this.#salt = start.salt;
    this.#position = start.position;
    this.#sequence = start.sequence;
    this.#peerPosition = start.position;
    this.geometry = geometry;
    this.number = number;
    this.#memory = own;
    this.#words = new Uint32Array(own.buffer);
    this.#control = new Uint32Array(own.buffer, controlOffset(number), 2);
    this.#base = ringOffset(number, geometry);
    this.#mask = geometry.slots - 1;
    this.#slotBytes = geometry.slotBytes;
  }

  get memory(): SharedMemory {
    return this.#memory;
  }

  /** Slots written since the start. */
  get position(): number {
    return this.#position;
  }

  get sequence(): number {
    return this.#sequence;
  }

  /** From here on the peer may still need the records. */
  get peerPosition(): number {
    return this.#peerPosition;
  }

  get usedSlots(): number {
    return (this.#position - this.#peerPosition) >>> 0;
  }

  /**
   * From now on records are written into other memory of the same layout; records that the peer has
   * not read are moved along. False when those are no valid records any more, which only a peer
   * that can write there brings about.
   */
  moveTo(memory: SharedMemory): boolean {
    if (memory === this.#memory) return true;
    let count = 0;
    for (let at = this.#peerPosition; at !== this.#position; count++) {
      const slots = this.slotsAt(at);
      if (slots === 0) return false;
      at = (at + slots) >>> 0;
    }
    const words = new Uint32Array(memory.buffer);
    // Sequences are counted, not copied: where the peer has read, it has cleared them.
    let sequence = sequenceBefore(this.#sequence, count);
    for (let at = this.#peerPosition; at !== this.#position; ) {
      const slots = this.slotsAt(at);
      if (slots === 0) return false;
      const offset = this.offsetAt(at);
      // The sequence last, because the peer may be polling. Partner: IncomingRing.next.
      copyMemory(memory, offset + 4, this.#memory, offset + 4, slots * this.#slotBytes - 4);
      storeRelease(words, offset >>> 2, sequence);
      sequence = nextSequence(sequence);
      at = (at + slots) >>> 0;
    }
    this.#memory = memory;
    this.#words = words;
    return true;
  }

  /** Loads how far the peer has read. False when that cannot be: it is past what was written. */
  refresh(): boolean {
    // Partner: the store in Indexer.publish, or its WRITE. Slots behind that position are the
    // writer's again.
    const read = loadAcquire(this.#control, controlWords.readPosition);
    return this.advance(read);
  }

  /** The peer told that it has read so far. */
  advance(read: number): boolean {
    if ((read - this.#peerPosition) >>> 0 > this.usedSlots) return false;
    this.#peerPosition = read;
    return true;
  }

  /** What the reader wants to be told: any number, until it is checked. */
  get readerMode(): number {
    // Partner: the store in Notifier.prepareSleep, or its WRITE. In shared memory our record was
    // stored before this load, and the reader polls for records after its store: one of the two
    // sees the other.
    return loadAcquire(this.#control, controlWords.readerMode);
  }

  /**
   * For a new transport: the peer told in the handshake how far it has read, and its mode is the
   * first one again.
   */
  restart(read: number, mode: number): boolean {
    if (!this.advance(read)) return false;
    // Nobody else uses the control words now: no transport is connected. Partner: `refresh` and
    // `readerMode` above.
    storeRelease(this.#control, controlWords.readPosition, read);
    storeRelease(this.#control, controlWords.readerMode, mode);
    return true;
  }

  /**
   * Bytes of payload that the next record of data may have, at most `wanted`; 0 when there is no
   * room. They go to `payloadOffset` of `memory`; `commit` makes a record of them.
   */
  reserve(wanted: number): number {
    const { slots, maxRecordSlots } = this.geometry;
    let free = slots - this.usedSlots;
    let toEnd = slots - (this.#position & this.#mask);
    const needed = Math.min(maxRecordSlots, slotsFor(wanted, this.#slotBytes));
    const enough = Math.min(needed, SHORT_END_BYTES / this.#slotBytes);
    if (toEnd < enough && free > toEnd) {
      this.#pad(toEnd);
      free -= toEnd;
      toEnd = slots;
    }
    const usable = Math.min(free, toEnd, needed);
    return usable <= 0 ? 0 : Math.min(wanted, payloadOf(usable, this.#slotBytes));
  }

  /**
   * Whether a record with so much payload fits now. Makes room at the end of the ring if need be.
   */
  fits(sizeBytes: number): boolean {
    const { slots } = this.geometry;
    const needed = slotsFor(sizeBytes, this.#slotBytes);
    const toEnd = slots - (this.#position & this.#mask);
    const free = slots - this.usedSlots;
    if (toEnd >= needed) return free >= needed;
    if (free < toEnd + needed) return false;
    this.#pad(toEnd);
    return true;
  }

  /** Where the payload of the next record stands in `memory`. */
  get payloadOffset(): number {
    return this.#base + (this.#position & this.#mask) * this.#slotBytes + HEADER_BYTES;
  }

  /**
   * Makes a record of what stands at `payloadOffset`. `credit` is given where it is not negative.
   */
  commit(kind: number, stream: number, sizeBytes: number, credit = -1, value = 0): void {
    const slots = slotsFor(sizeBytes, this.#slotBytes);
    const words = this.#words;
    const start = (this.#base + (this.#position & this.#mask) * this.#slotBytes) >>> 2;
    const whole = proofOf(this.#sequence, this.#salt);
    words[start + (proofOffset(sizeBytes) >>> 2)] = whole;
    words[start + recordWords.kind] = credit < 0 ? kind : kind | (FLAG_CREDIT << 8);
    words[start + recordWords.stream] = stream;
    words[start + recordWords.size] = sizeBytes;
    words[start + recordWords.slots] = slots;
    words[start + recordWords.credit] = credit < 0 ? 0 : credit;
    words[start + recordWords.value] = value;
    words[start + recordWords.proof] = whole;
    this.#publish(start, slots);
  }

  #pad(slots: number): void {
    const words = this.#words;
    const start = (this.#base + (this.#position & this.#mask) * this.#slotBytes) >>> 2;
    const whole = proofOf(this.#sequence, this.#salt);
    words[start + recordWords.kind] = recordKinds.pad;
    words[start + recordWords.stream] = 0;
    words[start + recordWords.size] = 0;
    words[start + recordWords.slots] = slots;
    words[start + recordWords.credit] = 0;
    words[start + recordWords.value] = 0;
    words[start + recordWords.proof] = whole;
    words[start + (proofOffset(0) >>> 2)] = whole;
    this.#publish(start, slots);
  }

  #publish(start: number, slots: number): void {
    // Last of the record: in the peer's memory, a load that sees the sequence sees all of the
    // record. Partner: IncomingRing.next.
    storeRelease(this.#words, start, this.#sequence);
    this.#position = (this.#position + slots) >>> 0;
    this.#sequence = nextSequence(this.#sequence);
  }

  /** Byte offset in the region of the slot at a position. */
  offsetAt(position: number): number {
    return this.#base + (position & this.#mask) * this.#slotBytes;
  }

  isPadAt(position: number): boolean {
    return (this.#words[(this.offsetAt(position) >>> 2) + recordWords.kind] & 0xff) === recordKinds.pad;
  }

  /**
   * Slots of the record at a position, as `memory` has it; 0 when that is no valid number, which
   * only a peer that can write there brings about.
   */
  slotsAt(position: number): number {
    const slots = this.#words[(this.offsetAt(position) >>> 2) + recordWords.slots];
    const toEnd = this.geometry.slots - (position & this.#mask);
    const left = (this.#position - position) >>> 0;
    return slots >= 1 && slots <= toEnd && slots <= left ? slots : 0;
  }
}
