// Writes control records: all records but data, which streams receive into the ring themselves (see
// Stream.resume).

import type { OutgoingRing } from './outgoing-ring.ts';
import { recordFlags, type StreamEnds } from './stream-ends.ts';

/** Pings and pongs that may wait, three numbers each; later ones are left out. */
const MAX_PING_WORDS = 24;

/** A stream of either kind, as the writer sees it. */
export interface RecordWriting {
  readonly ends: StreamEnds;
  /** There is no credit to tell, even where that is pending. */
  readonly isCreditTold: boolean;
  /** Writes data, now that there is room. */
  resume(): void;
  /** The payload of its record with this flag of `recordFlags`. */
  payloadBytesOf(flag: number): number;
  /** Commits that record, for which there is room. */
  write(ring: OutgoingRing, flag: number): void;
  /** It is in the ring. */
  written(flag: number): void;
}

export class ControlRecordWriter {
  readonly #ring: OutgoingRing;
  /** Streams with pending control records, first come first served. */
  #queue: RecordWriting[] = [];
  #writing: RecordWriting[] = [];
  /** Streams whose data found no room in the ring. */
  #waiting: RecordWriting[] = [];
  #resuming: RecordWriting[] = [];
  /** Kind, value and credit of each. */
  readonly #pings: number[] = [];
  /** Records in the ring since the start, data included. */
  records = 0;
  bytes = 0;

  constructor(ring: OutgoingRing) {
    this.#ring = ring;
  }

  get hasWork(): boolean {
    return this.#queue.length > 0 || this.#pings.length > 0;
  }

  /** The stream has pending control records. */
  enqueue(stream: RecordWriting): void {
    this.#queue.push(stream);
  }

  /** Resumes the stream when there is room. */
  waitForRoom(stream: RecordWriting): void {
    this.#waiting.push(stream);
  }

  get isWaitingForRoom(): boolean {
    return this.#waiting.length > 0;
  }

  /** A `ping` or a `pong`, written with the next records. */
  enqueuePing(kind: number, value: number, credit = -1): void {
    if (this.#pings.length < MAX_PING_WORDS) this.#pings.push(kind, value, credit);
  }

  /** A stream wrote a record of data. */
  countData(sizeBytes: number): void {
    this.records++;
    this.bytes += sizeBytes;
  }

  /**
   * Writes what is pending, then resumes the streams that waited for room. Returns how many records
   * were written.
   */
  write(): number {
    const before = this.records;
    if (this.#pings.length > 0) this.#writePings();
    if (this.#queue.length > 0) this.#writeStreams();
    if (this.#waiting.length > 0 && this.#ring.fits(0)) this.#resume();
    return this.records - before;
  }

  clear(): void {
    this.#queue.length = 0;
    this.#waiting.length = 0;
    this.#pings.length = 0;
  }

  #writePings(): void {
    for (let index = 0; index < this.#pings.length; index += 3) {
      if (!this.#ring.fits(0)) break;
      this.#ring.commit(this.#pings[index], 0, 0, this.#pings[index + 2], this.#pings[index + 1]);
      this.records++;
    }
    this.#pings.length = 0;
  }

  #writeStreams(): void {
    const writing = this.#queue;
    this.#queue = this.#writing;
    this.#writing = writing;
    let index = 0;
    for (; index < writing.length; index++) if (!this.#writeAll(writing[index])) break;
    // The ring is full: these are first the next time.
    for (; index < writing.length; index++) this.#queue.push(writing[index]);
    writing.length = 0;
  }

  #resume(): void {
    const resuming = this.#waiting;
    this.#waiting = this.#resuming;
    this.#resuming = resuming;
    for (let index = 0; index < resuming.length; index++) resuming[index].resume();
    resuming.length = 0;
  }

  /** False when the ring is full. */
  #writeAll(stream: RecordWriting): boolean {
    while (stream.ends.pending !== 0) {
      // The lowest flag first: they are in the order in which they may be written.
      const flag = stream.ends.pending & -stream.ends.pending;
      if (flag === recordFlags.credit && stream.isCreditTold) {
        stream.written(flag);
        continue;
      }
      if (!this.#ring.fits(stream.payloadBytesOf(flag))) return false;
      this.records++;
      stream.write(this.#ring, flag);
      stream.written(flag);
    }
    return true;
  }
}
