// The flow that a program writes: its lane takes bytes out of the ring and sends them to the peer,
// and tells the program what the reader at the peer's host says.
//
// The program may write anything at any time. What is wrong is `isBroken`, and ends this stream
// only.

import { copyMemory, high64, low64, type SharedMemory } from '../native/index.ts';
import { type FlowWords, flowIndex, positionOf, RETRACTED_HIGH, SEEN_HIGH, TAKEN_BACK_HIGH } from './flow-words.ts';
import { CREDIT_MASK } from './record-layout.ts';

const { written, base, from, until, wantsRoom, read, looks, isGone } = flowIndex;

export class FlowFromProgram {
  readonly #words: FlowWords;
  readonly #ringBytes: number;
  /** Where the ring begins, once the program has said so. */
  position = -1;
  #fromLow = 0;
  #fromHigh = 0;
  /** Bytes before this position were sent to the peer, */
  #taken = 0;
  /** and those before this one the peer's program has read, as the peer says. */
  #credit = 0;
  /** No more bytes are taken: the program, or the reader, goes on by TCP. */
  isOver = false;
  isBroken = false;

  constructor(words: FlowWords) {
    this.#words = words;
    this.#ringBytes = words.ringBytes;
  }

  /** The peer is, or is about to be, told of `position`. */
  get hasBegun(): boolean {
    return this.position >= 0;
  }

  // What the program says

  /** True when the ring has begun, which is to be told. */
  begins(): boolean {
    const words = this.#words;
    if (this.hasBegun || this.isOver || !words.isSet(from)) return false;
    // One load of 64 bits. Partner: begin_ring in direct/flow.c, which has set `written` and `base`
    // before.
    words.exchange64(from, 0, 0, 0, 0);
    this.#fromLow = low64() | 0;
    this.#fromHigh = high64() & ~SEEN_HIGH;
    if ((this.#fromHigh & RETRACTED_HIGH) !== 0) {
      this.isOver = true;
      return false;
    }
    const position = positionOf(this.#fromLow, this.#fromHigh);
    if (!Number.isSafeInteger(position) || position < 0) {
      this.isBroken = true;
      return false;
    }
    this.position = position;
    this.#taken = position | 0;
    this.#credit = position | 0;
    return true;
  }

  /** True when the program has gone back to TCP by itself, which is to be told. */
  stops(): boolean {
    const words = this.#words;
    if (this.isOver || !this.hasBegun) return false;
    const high = words.glance(from + 1) & ~SEEN_HIGH;
    // Before its reader has noticed, the program ends it so.
    const isRetracted = high === (this.#fromHigh | RETRACTED_HIGH);
    if (words.glance(from) !== this.#fromLow || (high !== this.#fromHigh && !isRetracted)) this.isBroken = true;
    else if (isRetracted || words.isSet(until)) this.isOver = true;
    return this.isOver;
  }

  /** Bytes that can be taken. */
  get available(): number {
    if (this.isOver || !this.hasBegun) return 0;
    // Partner: mr_put_end in direct/flow.c; bytes and `base` are before it. The peer has room for
    // as much as lies behind what its program has read, and takes more for a protocol error.
    const end = this.#words.load(written);
    const count = (end - this.#taken) >>> 0;
    const used = (end - this.#credit) >>> 0;
    if (used <= this.#ringBytes && count <= used) return count;
    this.isBroken = true;
    return 0;
  }

  /** Copies bytes, of which so many are available. */
  take(to: SharedMemory, toOffset: number, sizeBytes: number): void {
    const words = this.#words;
    // After `written`, see `available`. The program moves it only when all bytes were taken.
    const offset = (this.#taken - words.glance(base)) & (this.#ringBytes - 1);
    const first = Math.min(sizeBytes, this.#ringBytes - offset);
    const { memory } = words.arena;
    copyMemory(to, toOffset, memory, words.ringOffset + offset, first);
    if (first < sizeBytes) copyMemory(to, toOffset + first, memory, words.ringOffset, sizeBytes - first);
    this.#taken = (this.#taken + sizeBytes) | 0;
  }

  // What the peer says

  /** The peer's program has read so far, modulo 2^31. False when that cannot be. */
  advance(credit: number): boolean {
    const step = (credit - this.#credit) & CREDIT_MASK;
    if (!this.hasBegun || step > (this.#taken - this.#credit) >>> 0) return false;
    this.#credit = (this.#credit + step) | 0;
    const words = this.#words;
    // The program says that it wants room, and then loads `read`; here `read` is stored before
    // `wantsRoom` is loaded. Partner: mr_room in direct/flow.c and whoever waits for it.
    words.store(read, this.#credit);
    if (words.load(wantsRoom) === 0) return true;
    if ((words.load(written) - this.#credit) >>> 0 > this.#ringBytes / 2) return true;
    words.store(wantsRoom, 0);
    words.changed();
    return true;
  }

  /** The reader looks into its ring, so that this one may begin. Partner: mr_advance_out. */
  onLooks(): void {
    this.#words.store(looks, 1);
    this.#words.changed();
  }

  /**
   * The reader has noticed where the ring begins. Does nothing where the program has retracted it.
   */
  onSeen(): void {
    const [low, high] = [this.#fromLow, this.#fromHigh];
    this.#words.exchange64(from, low, high, low, high | SEEN_HIGH);
    this.#words.changed();
  }

  /** The reader reads no more of the ring; what it has not read comes by TCP. */
  onStop(): void {
    // Where this fails, the program was first, and `stops` tells it.
    if (this.#words.exchange64(until, 0, 0, 1, TAKEN_BACK_HIGH)) this.isOver = true;
    this.#words.changed();
  }

  /** The reader has closed the connection. */
  onGone(): void {
    this.#words.store(isGone, 1);
    this.#words.changed();
  }

  /** Nothing is taken any more. The program goes on by TCP from what `read` says. */
  lose(): void {
    this.#words.exchange64(until, 0, 0, 1, TAKEN_BACK_HIGH);
    this.#words.changed();
  }
}
