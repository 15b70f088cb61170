// The reader: takes records out of the incoming ring and sends their payload to programs, several
// with one system call.

import type { RangeList } from '../native/index.ts';
import type { DirectStream } from './direct-stream.ts';
import { type IncomingRing, nexts } from './incoming-ring.ts';
import { recordKinds } from './record-layout.ts';
import type { Stream } from './stream.ts';

/** Records that one link may read before other links of the lane have their turn. */
const MAX_RECORDS = 256;
/**
 * And about so many bytes, so that the peer is told of room and credit while there is more to read.
 * With all of a ring at a time, the two lanes would take turns instead of working at once; with
 * much less they wake each other too often.
 */
const MAX_BYTES = 1 << 20;

/** The link, as its reader sees it. */
export interface ReaderEvents {
  streamOf(id: number): Stream | DirectStream | undefined;
  /** Handles a control record. Returns a protocol error in words, or ''. */
  onRecord(kind: number, id: number): string;
}

export class Reader {
  readonly #ring: IncomingRing;
  readonly #events: ReaderEvents;
  readonly #ranges: RangeList;
  /** Records of one stream that are sent with the next system call. */
  #gathered = 0;
  #gatheredBytes = 0;
  #stream: Stream | undefined;
  readonly #offsets: Float64Array;
  readonly #sizes: Float64Array;
  readonly #hold: (stream: Stream, sent: number) => void;
  records = 0;
  bytes = 0;
  problem = '';

  constructor(ring: IncomingRing, ranges: RangeList, events: ReaderEvents) {
    this.#ring = ring;
    this.#ranges = ranges;
    this.#events = events;
    this.#offsets = new Float64Array(ranges.capacity);
    this.#sizes = new Float64Array(ranges.capacity);
    this.#hold = (stream, sent) => this.#holdRest(stream, sent);
  }

  /** Returns how many records were read; negative at a protocol error, which `problem` tells. */
  read(): number {
    const ring = this.#ring;
    let count = 0;
    let state = nexts.nothing as number;
    const endBytes = this.bytes + MAX_BYTES;
    while (count < MAX_RECORDS && this.bytes < endBytes) {
      state = ring.next();
      if (state !== nexts.record) break;
      count++;
      this.problem = this.#handle(ring.kind, ring.stream, ring.size);
      if (this.problem !== '') break;
    }
    this.#send();
    if (count > 0) ring.release();
    if (state === nexts.broken) this.problem = ring.problem;
    this.records += count;
    return this.problem === '' ? count : -1;
  }

  #handle(kind: number, id: number, size: number): string {
    if (kind !== recordKinds.data) {
      // Data before a control record must be sent to the program first, or held for it.
      this.#send();
      return kind === recordKinds.pad ? '' : this.#events.onRecord(kind, id);
    }
    const isSame = this.#stream !== undefined && this.#stream.id === id;
    const stream = isSame ? this.#stream : this.#events.streamOf(id);
    if (stream === undefined) return `data of stream ${id}, which is not open`;
    if (stream.isDirect) {
      this.bytes += size;
      return stream.onData(this.#ring);
    }
    if (!isSame || this.#gathered === this.#ranges.capacity) this.#send();
    if (!stream.expects(size)) return `stream ${id} sent more than it may`;
    const ring = this.#ring;
    if (ring.credit >= 0) stream.onCredit(ring.credit);
    this.bytes += size;
    if (size === 0) return '';
    // The credit may have led to the end of the socket.
    if (stream.takesAtOnce) {
      this.#stream = stream;
      this.#ranges.set(this.#gathered, ring.memory, ring.payloadOffset, size);
      this.#offsets[this.#gathered] = ring.payloadOffset;
      this.#sizes[this.#gathered] = size;
      this.#gathered++;
      this.#gatheredBytes += size;
    } else {
      this.#send();
      stream.countIn(size);
      stream.hold(ring.memory, ring.payloadOffset, size);
    }
    return '';
  }

  #send(): void {
    const stream = this.#stream;
    if (stream === undefined) return;
    stream.deliverRanges(this.#ranges, this.#gathered, this.#gatheredBytes, this.#hold);
    this.#stream = undefined;
    this.#gathered = 0;
    this.#gatheredBytes = 0;
  }

  #holdRest(stream: Stream, sent: number): void {
    let skip = sent;
    for (let index = 0; index < this.#gathered; index++) {
      const size = this.#sizes[index];
      if (skip < size) stream.hold(this.#ring.memory, this.#offsets[index] + skip, size - skip);
      skip = Math.max(0, skip - size);
    }
  }
}
