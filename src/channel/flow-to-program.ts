// The flow that a program reads: its lane puts bytes of the peer into the ring, and tells the peer
// how far the program has read and what else it says.
//
// The program may write anything at any time. What is wrong is `isBroken`, and ends this stream
// only. What the peer sends is checked by `accepts`.

import { type LostWord, lostWords } from '../direct/arena/index.ts';
import { copyMemory, type SharedMemory } from '../native/index.ts';
import { type FlowWords, flowIndex, highOf, lowOf, RETRACTED_HIGH } from './flow-words.ts';
import { CREDIT_MASK, mirrorWords } from './record-layout.ts';

const { written, base, from, until, wantsRoom, isLost, read, looks, isGone } = flowIndex;

export class FlowToProgram {
  readonly #words: FlowWords;
  readonly #ringBytes: number;
  readonly #quarter: number;
  /** Where the ring began; negative until the peer has said so. */
  #position = -1;
  #written = 0;
  #base = 0;
  /** How far the program has read, as of the last time it was looked at, */
  #read = 0;
  /** and as of what the peer was told. */
  #told = 0;
  /** What the program has said: flags of `mirrorWords`. */
  #said = 0;
  /** The peer was told that the program has noticed where the ring begins. */
  #isSeenTold = false;
  /** The program does not want the ring, or has gone back to TCP. */
  #isUnwanted = false;
  /** No more data comes. */
  #isOver = false;
  isBroken = false;
  /** `#written` when idle rings were asked for, */
  #idle = -1;
  /** and the ring had no pages any more. */
  #isTrimmed = false;

  constructor(words: FlowWords) {
    this.#words = words;
    this.#ringBytes = words.ringBytes;
    this.#quarter = words.ringBytes / 4;
  }

  get hasBegun(): boolean {
    return this.#position >= 0;
  }

  // What the program says

  /** What the program says for the first time: flags of `mirrorWords`. */
  look(): number {
    const words = this.#words;
    const before = this.#said;
    // `read` last: it is final once the program has taken the rest back or is gone. Partner:
    // mr_stop_in_lane in direct/resume.c.
    if (words.glance(looks) === 1) this.#said |= mirrorWords.looks;
    if (words.glance(isGone) !== 0) this.#said |= mirrorWords.gone;
    if (!this.#isOver && (this.#said & mirrorWords.stop) === 0 && words.isSet(until)) this.#stop();
    if (this.hasBegun && !this.#isUnwanted && (this.#said & mirrorWords.seen) === 0) this.#lookAtFrom();
    if ((this.#said & mirrorWords.seen) !== 0) {
      this.#refresh();
      this.#wantRoom();
    }
    return this.#said & ~before;
  }

  #lookAtFrom(): void {
    // Partner: mr_advance_in_lane and mr_stop_in_lane in direct/resume.c, which set one of the two.
    const high = this.#words.glance(from + 1);
    if (high < 0) {
      this.#said |= mirrorWords.seen;
    } else if ((high & RETRACTED_HIGH) !== 0) {
      this.#isUnwanted = true;
      this.#said |= mirrorWords.stop;
    }
  }

  #stop(): void {
    // Only the reader may have decided it: we have not.
    if (this.#words.glance(until + 1) >= 0) {
      this.isBroken = true;
      return;
    }
    this.#said |= mirrorWords.stop;
  }

  #refresh(): void {
    const position = this.#words.load(read);
    if ((position - this.#read) >>> 0 > (this.#written - this.#read) >>> 0) this.isBroken = true;
    else this.#read = position;
  }

  /**
   * Makes the program ring when it has read on, where the peer waits for that sooner or later: with
   * less than a quarter that is not confirmed, its ring is never full.
   */
  #wantRoom(): void {
    const confirmed = this.isCreditDue ? this.#read : this.#told;
    if ((this.#written - confirmed) >>> 0 < this.#quarter) return;
    // Then `read` is loaded; the program stores `read` and then loads this. Partner: mr_taken in
    // direct/flow.c.
    this.#words.store(wantsRoom, 1);
    this.#refresh();
  }

  /** So much is read and not told that the peer gets a record of its own. */
  get isCreditDue(): boolean {
    return this.#isSeenTold && (this.#read - this.#told) >>> 0 >= this.#quarter;
  }

  get isCreditTold(): boolean {
    return !this.#isSeenTold || this.#read === this.#told;
  }

  /** The credit as it travels, or -1 where there is nothing new. It counts as told. */
  tell(): number {
    if (this.isCreditTold) return -1;
    this.#told = this.#read;
    return this.#told & CREDIT_MASK;
  }

  /** The peer is told of these, in this record. */
  telling(words: number): void {
    if ((words & mirrorWords.seen) !== 0) this.#isSeenTold = true;
  }

  // What the peer says

  /** The ring begins at this position. False when the program does not want it. */
  begin(position: number): boolean {
    const words = this.#words;
    const start = position | 0;
    this.#position = position;
    this.#written = start;
    this.#base = start;
    this.#read = start;
    this.#told = start;
    words.prepare(base, start);
    words.prepare(written, start);
    words.prepare(read, start);
    // Partner: the load of `from` in mr_advance_in_lane, which sees the three words before.
    this.#isUnwanted = !words.exchange64(from, 0, 0, lowOf(position), highOf(position));
    words.changed();
    return !this.#isUnwanted;
  }

  /** Whether the peer may send so much data now. */
  accepts(sizeBytes: number): boolean {
    return this.hasBegun && !this.#isOver && ((this.#written - this.#told) >>> 0) + sizeBytes <= this.#ringBytes;
  }

  /** Copies data, which is accepted, into the ring. */
  put(memory: SharedMemory, offset: number, sizeBytes: number): void {
    const words = this.#words;
    if (this.#isUnwanted || (this.#said & mirrorWords.stop) !== 0) {
      this.#written = (this.#written + sizeBytes) | 0;
      return;
    }
    this.#refresh();
    if (this.#read === this.#written && this.#base !== this.#written) {
      // An empty ring starts over at its beginning, so that few cache lines are used. The program
      // loads it after `written`.
      this.#base = this.#written;
      words.prepare(base, this.#base);
    }
    const start = (this.#written - this.#base) & (this.#ringBytes - 1);
    const first = Math.min(sizeBytes, this.#ringBytes - start);
    const to = words.arena.memory;
    copyMemory(to, words.ringOffset + start, memory, offset, first);
    if (first < sizeBytes) copyMemory(to, words.ringOffset, memory, offset + first, sizeBytes - first);
    this.#written = (this.#written + sizeBytes) | 0;
    // Partner: mr_readable in direct/flow.c. The bytes and `base` are before it.
    words.store(written, this.#written);
    words.changed();
    if ((this.#said & mirrorWords.seen) !== 0) this.#wantRoom();
  }

  /** An empty ring that was not written to since the last time gives its pages back. */
  trim(): void {
    if (!this.hasBegun) return;
    this.#refresh();
    if (this.#read !== this.#written) return;
    const { arena, ringOffset } = this.#words;
    const isIdle = this.#idle === this.#written;
    this.#idle = this.#written;
    if (!isIdle || this.#isTrimmed) {
      this.#isTrimmed = isIdle;
      return;
    }
    try {
      arena.memory.discard(ringOffset, this.#ringBytes);
      this.#isTrimmed = true;
    } catch {
      // The system refuses it for now: the next time, perhaps.
    }
  }

  /** The writer has gone back to TCP. */
  onStopped(): void {
    this.#isOver = true;
    this.#words.store(isLost, lostWords.lost);
    this.#words.changed();
  }

  /**
   * The writer was killed, and all that it wrote is in the ring, which ends after so many bytes.
   */
  onEnded(bytes: number): void {
    this.#isOver = true;
    const end = this.#position + bytes;
    // Where this fails, the program has gone back to TCP, which tells it as well.
    this.#words.exchange64(until, 0, 0, lowOf(end), highOf(end));
    this.#words.changed();
  }

  /** Nothing comes any more. What the ring has is followed by what comes by TCP. */
  lose(why: LostWord): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#words.store(isLost, why);
    this.#words.changed();
  }
}
