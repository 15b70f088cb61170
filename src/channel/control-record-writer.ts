// Writes control records: all records but data, which streams receive into the ring themselves (see
// Stream.resume).

import { OPEN_PAYLOAD_BYTES, writeOpen } from './open-record.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { recordKinds } from './record-layout.ts';
import type { Stream } from './stream.ts';
import { recordFlags } from './stream-ends.ts';

/** Pings and pongs that may wait, two numbers each; later ones are left out. */
const MAX_PING_WORDS = 16;

export class ControlRecordWriter {
  readonly #ring: OutgoingRing;
  /** Streams with pending control records, first come first served. */
  #queue: Stream[] = [];
  #writing: Stream[] = [];
  /** Streams whose data found no room in the ring. */
  #waiting: Stream[] = [];
  #resuming: Stream[] = [];
  /** Kind and value of each. */
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
  enqueue(stream: Stream): void {
    this.#queue.push(stream);
  }

  /** Resumes the stream when there is room. */
  waitForRoom(stream: Stream): void {
    this.#waiting.push(stream);
  }

  get isWaitingForRoom(): boolean {
    return this.#waiting.length > 0;
  }

  /** A `ping` or a `pong`, written with the next records. */
  enqueuePing(kind: number, value: number): void {
    if (this.#pings.length < MAX_PING_WORDS) this.#pings.push(kind, value);
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
    for (let index = 0; index < this.#pings.length; index += 2) {
      if (!this.#ring.fits(0)) break;
      this.#ring.commit(this.#pings[index], 0, 0, -1, this.#pings[index + 1]);
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
  #writeAll(stream: Stream): boolean {
    while (stream.ends.pending !== 0) {
      // The lowest flag first: they are in the order in which they may be written.
      const flag = stream.ends.pending & -stream.ends.pending;
      if (flag === recordFlags.credit && stream.isCreditTold) {
        stream.written(flag);
        continue;
      }
      if (!this.#ring.fits(flag === recordFlags.open ? OPEN_PAYLOAD_BYTES : 0)) return false;
      this.records++;
      this.#write(stream, flag);
      stream.written(flag);
    }
    return true;
  }

  #write(stream: Stream, flag: number): void {
    const ring = this.#ring;
    switch (flag) {
      case recordFlags.open:
        writeOpen(ring.memory.buffer, ring.payloadOffset, stream.info);
        ring.commit(recordKinds.open, stream.id, OPEN_PAYLOAD_BYTES, stream.tellCredit());
        break;
      case recordFlags.opened:
        ring.commit(recordKinds.opened, stream.id, 0, stream.tellCredit());
        break;
      case recordFlags.refused:
        ring.commit(recordKinds.refused, stream.id, 0, -1, stream.refusal);
        break;
      case recordFlags.credit:
        ring.commit(recordKinds.credit, stream.id, 0, stream.tellCredit());
        break;
      case recordFlags.shut:
        ring.commit(recordKinds.shut, stream.id, 0);
        break;
      default:
        ring.commit(recordKinds.reset, stream.id, 0);
    }
  }
}
