// An arena as one of its parties has mapped it: its words, its rings and its two doorbells.
//
// The other party can write all of it at any time, so nothing here believes what it reads: bits of
// slots that are not in use are ignored, and offsets into rings are masked by those who use them.

import { UsageError } from '../../errors.ts';
import { type EventFd, exchange, fetchOr, loadAcquire, type SharedMemory, storeRelease } from '../../native/index.ts';
import {
  arenaBytes,
  DOORBELL_BYTES,
  doorbellWords,
  FLOW_BYTES,
  RINGS_OFFSET,
  SLOT_BYTES,
  SLOTS,
  SLOTS_OFFSET,
} from './layout.ts';

/** Whoever uses a slot. */
export interface SlotUser {
  /** The other party has changed something there. */
  onNews(): void;
}

export class MappedArena implements Disposable {
  readonly memory: SharedMemory;
  readonly ringBytes: number;
  /** All words of the arena. */
  readonly words: Int32Array;
  readonly #own: EventFd;
  readonly #other: EventFd;
  /** Words of the doorbell that this party hears, and of the other's. */
  readonly #ready: number;
  readonly #asleep: number;
  readonly #otherReady: number;
  readonly #otherAsleep: number;
  readonly #users: (SlotUser | undefined)[] = Array.from({ length: SLOTS }, () => undefined);
  /** Slots that were changed since the other party's doorbell was rung, as bits. */
  #changedLow = 0;
  #changedHigh = 0;
  /** This party has said that it sleeps. */
  #isAsleep = false;

  /** Takes over the memory and both doorbells. */
  constructor(memory: SharedMemory, ringBytes: number, party: 0 | 1, doorbells: { own: EventFd; other: EventFd }) {
    if (memory.sizeBytes < arenaBytes(ringBytes)) {
      throw new UsageError(`an arena with rings of ${ringBytes} bytes in ${memory.sizeBytes} bytes of memory`);
    }
    this.memory = memory;
    this.ringBytes = ringBytes;
    this.words = memory.words;
    this.#own = doorbells.own;
    this.#other = doorbells.other;
    const doorbellOf = (each: number): number => each * DOORBELL_BYTES;
    this.#ready = (doorbellOf(party) + doorbellWords.ready) / 4;
    this.#asleep = (doorbellOf(party) + doorbellWords.asleep) / 4;
    this.#otherReady = (doorbellOf(1 - party) + doorbellWords.ready) / 4;
    this.#otherAsleep = (doorbellOf(1 - party) + doorbellWords.asleep) / 4;
  }

  /** Becomes readable when the other party rings while this one sleeps. */
  get doorbellFd(): number {
    return this.#own.fd;
  }

  get isClosed(): boolean {
    return this.memory.isClosed;
  }

  /** Where the words of a flow begin, in bytes. */
  static flowOffset(slot: number, party: 0 | 1): number {
    return SLOTS_OFFSET + slot * SLOT_BYTES + party * FLOW_BYTES;
  }

  /** Where the ring that a party writes begins. */
  ringOffset(slot: number, party: 0 | 1): number {
    return RINGS_OFFSET + (2 * slot + party) * this.ringBytes;
  }

  use(slot: number, user: SlotUser): void {
    this.#users[slot] = user;
  }

  leave(slot: number): void {
    this.#users[slot] = undefined;
  }

  /** Hands out what the other party has rung for. Returns how many slots that were. */
  collect(): number {
    const { words } = this;
    if (this.#isAsleep) {
      // Woken by something else: the other party need not write the eventfd. A ring that comes
      // between is seen below.
      this.#isAsleep = false;
      storeRelease(words, this.#asleep, 0);
    }
    // The other party sets bits with one operation of 64 bits, after it has changed the slots; each
    // half is taken by an operation of its own, so no bit is lost. Partner: mr_ring in
    // direct/doorbell.c.
    let count = 0;
    if (words[this.#ready] !== 0) count = this.#handOut(exchange(words, this.#ready, 0), 0);
    if (!this.isClosed && words[this.#ready + 1] !== 0) count += this.#handOut(exchange(words, this.#ready + 1, 0), 32);
    return count;
  }

  #handOut(bits: number, first: number): number {
    let count = 0;
    for (let left = bits; left !== 0; left &= left - 1) {
      count++;
      this.#users[first + 31 - Math.clz32(left & -left)]?.onNews();
      // Whoever was told may have closed the arena.
      if (this.isClosed) break;
    }
    return count;
  }

  /** A slot was changed: the next `ring` tells the other party. */
  changed(slot: number): void {
    if (slot < 32) this.#changedLow |= 1 << slot;
    else this.#changedHigh |= 1 << (slot - 32);
  }

  /** Tells the other party which slots were changed, and wakes it if it sleeps. */
  ring(): void {
    const low = this.#changedLow;
    const high = this.#changedHigh;
    if ((low | high) === 0 || this.isClosed) return;
    this.#changedLow = 0;
    this.#changedHigh = 0;
    const { words } = this;
    // Sequentially consistent, as is the other party's pair: it sets `asleep` and then looks at
    // `ready`; here `ready` is set before `asleep` is looked at. Partner: mr_falling_asleep and
    // mr_collect in direct/doorbell.c.
    if (low !== 0) fetchOr(words, this.#otherReady, low);
    if (high !== 0) fetchOr(words, this.#otherReady + 1, high);
    if (loadAcquire(words, this.#otherAsleep) === 0) return;
    if (exchange(words, this.#otherAsleep, 0) === 1) this.#wakeOther();
  }

  #wakeOther(): void {
    try {
      this.#other.signal();
    } catch {
      // The program can fill the counter, and is then awake as far as anybody can wake it.
    }
  }

  /** True when this party may block until its doorbell rings. */
  prepareSleep(): boolean {
    const { words } = this;
    // Before `ready` is looked at. Partner: the other party sets its bit, then looks at `asleep`
    // (mr_ring in direct/doorbell.c).
    this.#isAsleep = true;
    storeRelease(words, this.#asleep, 1);
    return (loadAcquire(words, this.#ready) | loadAcquire(words, this.#ready + 1)) === 0;
  }

  close(): void {
    this.#users.fill(undefined);
    this.memory.close();
    this.#own.close();
    this.#other.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
