// A direct stream: mirrors a slot that a program of this host uses to one that a program of the
// peer's host uses. Bytes go from ring to ring, and a few words with them.
//
// The programs themselves repeat by TCP what a stream that ends has not carried, so it may end at
// any moment: it marks its slot as lost and forgets it. Both sides end it with a `reset`; what
// arrives between the two is dropped.

import { lostWords } from '../direct/arena/index.ts';
import type { Resumable } from '../loop/index.ts';
import type { RecordWriting } from './control-record-writer.ts';
import { FROM_BYTES, KEY_BYTES, readFrom, writeFrom, writeKey } from './direct-records.ts';
import type { IncomingRing } from './incoming-ring.ts';
import type { LinkContext } from './link-context.ts';
import type { MirroredSlot } from './mirrored-slot.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { ALL_MIRROR_WORDS, mirrorWords, recordKinds } from './record-layout.ts';
import { recordFlags, StreamEnds, type StreamEndsEvents } from './stream-ends.ts';

/** Records that one stream may write before other streams of the lane have their turn. */
const MAX_ROUNDS = 4;
/**
 * Over the kernel's TCP, large pieces are faster without us: the programs' own connection moves
 * them by the same TCP with four copies less. So a stream is left to it after so many bytes in
 * pieces of such a size on average. Small pieces of many connections share sends of ours, and stay.
 */
const BULK_BYTES = 8 * 1024 * 1024;
const BULK_PIECE_BYTES = 32 * 1024;
/** Data may not be written before these are. */
const BEFORE_DATA = recordFlags.open | recordFlags.from;

/** The link, as its direct streams see it. */
export interface DirectOwner {
  readonly outgoing: OutgoingRing;
  readonly context: LinkContext;
  readonly maxPayloadBytes: number;
  /** Records go by the kernel's TCP. */
  readonly isOverTcp: boolean;
  enqueue(stream: RecordWriting): void;
  waitForRoom(stream: RecordWriting): void;
  wrote(sizeBytes: number): void;
  idFree(stream: DirectStream): void;
  /** The stream does not touch its slot any more. */
  slotLeft(stream: DirectStream): void;
}

export class DirectStream implements RecordWriting, Resumable, StreamEndsEvents {
  readonly isDirect = true;
  /** Names the connection; 32 hex digits. */
  readonly key: string;
  readonly sinceMs = Date.now();
  readonly ends = new StreamEnds(this);
  readonly #owner: DirectOwner;
  /** Undefined once it is left. */
  #slot: MirroredSlot | undefined;
  #id = -1;
  /** What the peer is to be told: flags of `mirrorWords`. */
  #words = 0;
  /** The link, or the loop, resumes it. */
  #isWaiting = false;
  /** The program was killed: what its ring has is sent, then the stream ends. */
  #isEnding = false;
  #onLeft: (() => void) | undefined;
  /** Where the program's ring begins. */
  #position = 0;
  bytesIn = 0;
  bytesOut = 0;
  /** Since it was last looked at whether it moves bulk. */
  #pieceBytes = 0;
  #pieces = 0;

  /** Without a slot it can only be reset. */
  constructor(owner: DirectOwner, key: string, slot: MirroredSlot | undefined) {
    this.#owner = owner;
    this.key = key;
    this.#slot = slot;
  }

  /** Negative until the stream is open. */
  get id(): number {
    return this.#id;
  }

  /** Otherwise it only waits for the peer to end it as well. */
  get hasSlot(): boolean {
    return this.#slot !== undefined;
  }

  /** The program has ended, and the rest of its ring is being sent. */
  get isEnding(): boolean {
    return this.#isEnding;
  }

  /** This side opens it. */
  open(id: number): void {
    this.#id = id;
    this.ends.request(recordFlags.open);
    this.onNews();
  }

  /** The peer has opened it. */
  opened(id: number): void {
    this.#id = id;
    if (this.#slot === undefined) this.ends.resetHere();
    else this.onNews();
  }

  /**
   * The program has left the slot; `isEnded`: by being killed, so that the rest of its ring is
   * still sent. `onLeft` is called once, when the stream does not touch the slot any more.
   */
  unmirror(isEnded: boolean, onLeft: () => void): void {
    if (this.#slot === undefined) {
      onLeft();
      return;
    }
    this.#onLeft = onLeft;
    if (this.#id < 0) {
      this.#end();
      return;
    }
    this.#isEnding = isEnded;
    // Its last words, above all that it has closed the connection.
    this.onNews();
    if (!isEnded) this.#end();
  }

  /** The peer is gone, or the arena is: nothing is carried any more. */
  abandon(): void {
    this.ends.abandon();
    this.#lose();
  }

  /** As `abandon`, where the peer is there to be told. */
  lose(): void {
    this.#slot?.lose();
    this.#end();
  }

  /**
   * An idle slot gives pages back, and the peer hears how far its program has read, for the same.
   */
  trim(): void {
    const slot = this.#slot;
    if (slot === undefined || this.#id < 0) return;
    slot.trim();
    if (!this.#isWrong(slot) && !slot.toProgram.isCreditTold) this.ends.request(recordFlags.credit);
  }

  // From the program to the peer

  /** The program has changed something in the slot. */
  onNews(): void {
    const slot = this.#slot;
    if (slot === undefined || this.#id < 0) return;
    const { fromProgram, toProgram } = slot;
    let news = toProgram.look();
    if (fromProgram.begins()) {
      this.#position = fromProgram.position;
      this.ends.request(recordFlags.from);
    }
    if (fromProgram.stops()) news |= mirrorWords.stopped;
    if (news !== 0) this.#tell(news);
    if (this.#isWrong(slot)) return;
    if (toProgram.isCreditDue) this.ends.request(recordFlags.credit);
    if (!this.#isWaiting) this.#send(slot);
  }

  resume(): void {
    this.#isWaiting = false;
    if (this.#slot !== undefined) this.#send(this.#slot);
  }

  /** Copies from the program's ring straight into the link's, as far as there is room. */
  #send(slot: MirroredSlot): void {
    if ((this.ends.pending & BEFORE_DATA) !== 0) return;
    const { outgoing, maxPayloadBytes } = this.#owner;
    const { fromProgram, toProgram } = slot;
    for (let round = 0; ; round++) {
      const available = fromProgram.available;
      if (this.#isWrong(slot)) return;
      if (available === 0) break;
      if (round === MAX_ROUNDS) {
        this.#isWaiting = true;
        this.#owner.context.loop.again(this);
        return;
      }
      const size = outgoing.reserve(Math.min(available, maxPayloadBytes));
      if (size <= 0) {
        this.#isWaiting = true;
        this.#owner.waitForRoom(this);
        return;
      }
      fromProgram.take(outgoing.memory, outgoing.payloadOffset, size);
      outgoing.commit(recordKinds.data, this.#id, size, toProgram.tell());
      this.bytesOut += size;
      this.#pieceBytes += size;
      this.#pieces++;
      this.#owner.wrote(size);
      if (this.#pieceBytes >= BULK_BYTES && this.#isBulk()) {
        slot.lose(lostWords.bulk);
        this.#end();
        return;
      }
    }
    if (!this.#isEnding) return;
    if (fromProgram.hasBegun && !fromProgram.isOver) this.#tell(mirrorWords.ended);
    // A child of the program may still have the connection, and goes on by TCP.
    slot.lose();
    this.#end();
  }

  /** Asked after BULK_BYTES. */
  #isBulk(): boolean {
    const isLarge = this.#pieceBytes >= this.#pieces * BULK_PIECE_BYTES;
    this.#pieceBytes = 0;
    this.#pieces = 0;
    // What a program has left behind must be sent here.
    return isLarge && this.#owner.isOverTcp && !this.#isEnding;
  }

  #tell(words: number): void {
    this.#words |= words;
    this.ends.request(recordFlags.mirror);
  }

  /** Ends the stream where the program has written something that cannot be. */
  #isWrong(slot: MirroredSlot): boolean {
    if (!slot.isBroken) return false;
    this.lose();
    return true;
  }

  // From the peer to the program

  /** Returns a protocol error in words, or ''. */
  onData(ring: IncomingRing): string {
    if (!this.ends.mayReceive) return `data of stream ${this.#id}, which has ended`;
    const slot = this.#slot;
    // The peer wrote it before it knew that the stream was over.
    if (slot === undefined) return '';
    const { toProgram } = slot;
    if (ring.credit >= 0 && !slot.fromProgram.advance(ring.credit)) return this.#wrongCredit();
    if (!toProgram.accepts(ring.size)) return `stream ${this.#id} sent more than it may`;
    toProgram.put(ring.memory, ring.payloadOffset, ring.size);
    this.bytesIn += ring.size;
    if (!this.#isWrong(slot) && toProgram.isCreditDue) this.ends.request(recordFlags.credit);
    return '';
  }

  /** Any other record. `words` are those of the ring's memory. */
  onRecord(ring: IncomingRing, words: Uint32Array): string {
    const { kind, credit } = ring;
    if (!this.ends.mayReceive) return `kind ${kind} of stream ${this.#id}, which has ended`;
    if (kind === recordKinds.reset) {
      this.ends.resetThere();
      this.#lose();
      return '';
    }
    const slot = this.#slot;
    if (slot === undefined) return '';
    // Before `stop`, after which the program goes on from where it says.
    if (credit >= 0 && !slot.fromProgram.advance(credit)) return this.#wrongCredit();
    if (kind === recordKinds.credit) return '';
    if (kind === recordKinds.mirror) return this.#onMirror(slot, ring.value);
    if (kind !== recordKinds.from) return `kind ${kind} of stream ${this.#id}, which is direct`;
    const position = ring.size === FROM_BYTES ? readFrom(words, ring.payloadOffset, ring.value) : -1;
    if (position < 0 || slot.toProgram.hasBegun) return `stream ${this.#id} begins its ring a second time, or nowhere`;
    if (!slot.toProgram.begin(position)) this.#tell(mirrorWords.stop);
    return '';
  }

  #onMirror({ fromProgram, toProgram }: MirroredSlot, words: number): string {
    const isWrong =
      (words & ~ALL_MIRROR_WORDS) !== 0 ||
      ((words & mirrorWords.seen) !== 0 && !fromProgram.hasBegun) ||
      ((words & (mirrorWords.stopped | mirrorWords.ended)) !== 0 && !toProgram.hasBegun);
    if (isWrong) return `stream ${this.#id} mirrors ${words}`;
    if ((words & mirrorWords.looks) !== 0) fromProgram.onLooks();
    if ((words & mirrorWords.seen) !== 0) fromProgram.onSeen();
    if ((words & mirrorWords.gone) !== 0) fromProgram.onGone();
    if ((words & mirrorWords.stop) !== 0) fromProgram.onStop();
    if ((words & mirrorWords.stopped) !== 0) toProgram.onStopped();
    if ((words & mirrorWords.ended) !== 0) toProgram.onEnded(this.bytesIn);
    return '';
  }

  #wrongCredit(): string {
    return `stream ${this.#id} has read more than was written`;
  }

  // The end

  #lose(): void {
    this.#slot?.lose();
    this.#leave();
  }

  /** Tells the peer. */
  #end(): void {
    if (this.#id >= 0) this.ends.resetHere();
    this.#leave();
  }

  #leave(): void {
    if (this.#slot === undefined) return;
    this.#slot = undefined;
    this.#owner.slotLeft(this);
    this.#onLeft?.();
  }

  // StreamEndsEvents, and the writer of control records

  onPending(): void {
    this.#owner.enqueue(this);
  }

  onIdFree(): void {
    this.#owner.idFree(this);
  }

  get isCreditTold(): boolean {
    return this.#slot === undefined || this.#slot.toProgram.isCreditTold;
  }

  payloadBytesOf(flag: number): number {
    if (flag === recordFlags.open) return KEY_BYTES;
    return flag === recordFlags.from ? FROM_BYTES : 0;
  }

  write(ring: OutgoingRing, flag: number): void {
    const id = this.#id;
    switch (flag) {
      case recordFlags.open:
        writeKey(ring.memory.buffer, ring.payloadOffset, this.key);
        ring.commit(recordKinds.openDirect, id, KEY_BYTES);
        break;
      case recordFlags.from:
        writeFrom(ring.memory.buffer, ring.payloadOffset, this.#position);
        ring.commit(recordKinds.from, id, FROM_BYTES, -1, this.#position >>> 0);
        break;
      case recordFlags.mirror:
        this.#slot?.toProgram.telling(this.#words);
        ring.commit(recordKinds.mirror, id, 0, this.#credit(), this.#words);
        this.#words = 0;
        break;
      case recordFlags.credit:
        ring.commit(recordKinds.credit, id, 0, this.#credit());
        break;
      default:
        ring.commit(recordKinds.reset, id, 0);
    }
  }

  #credit(): number {
    return this.#slot?.toProgram.tell() ?? -1;
  }

  written(flag: number): void {
    this.ends.written(flag);
    if ((flag & BEFORE_DATA) !== 0) this.resume();
  }
}
