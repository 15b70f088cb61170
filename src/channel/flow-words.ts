// The words of one flow of an arena's slot, by name, with the orderings that its two parties rely
// on.

import { flowWords, MappedArena } from '../direct/arena/index.ts';
import { compareSwap64, high64, loadAcquire, low64, storeRelease } from '../native/index.ts';

/** Bit 63 of `from`: the reader has noticed. */
export const SEEN_HIGH = 0x8000_0000 | 0;
/** Bit 62 of `from`: the bytes of the ring go by TCP after all. */
export const RETRACTED_HIGH = 0x4000_0000;
/** Bit 63 of `until`: the reader decided it. */
export const TAKEN_BACK_HIGH = 0x8000_0000 | 0;

const TWO_32 = 4_294_967_296;

/** Bits of a position that it shares with no flag. */
const POSITION_HIGH = 0x3fff_ffff;

/** As `from` and `until` hold a position: one more than it is, in two halves. */
export const highOf = (position: number): number => Math.floor((position + 1) / TWO_32) | 0;
export const lowOf = (position: number): number => (position + 1) | 0;

/**
 * The position that `from` or `until` holds, without its flags; negative or no safe integer where
 * that is none.
 */
export function positionOf(low: number, high: number): number {
  return (high & POSITION_HIGH) * TWO_32 + (low >>> 0) - 1;
}

/**
 * Positions are the low 32 bits, as signed numbers, which V8 keeps without allocation.
 */
export class FlowWords {
  readonly arena: MappedArena;
  readonly slot: number;
  readonly ringBytes: number;
  /** Where the ring begins in the arena's memory. */
  readonly ringOffset: number;
  readonly #words: Int32Array;
  readonly #at: number;
  readonly #offset: number;

  constructor(arena: MappedArena, slot: number, party: 0 | 1) {
    this.arena = arena;
    this.slot = slot;
    this.ringBytes = arena.ringBytes;
    this.ringOffset = arena.ringOffset(slot, party);
    this.#words = arena.words;
    this.#offset = MappedArena.flowOffset(slot, party);
    this.#at = this.#offset / 4;
  }

  /** Sequentially consistent; so is `store`. */
  load(word: number): number {
    return loadAcquire(this.#words, this.#at + word);
  }

  /**
   * An ordinary load, without the call that V8 makes of an atomic one; those were a tenth of a busy
   * lane's time. It sees at least what the program had stored before the last ring that was
   * collected: for words after whose changes the program rings.
   */
  glance(word: number): number {
    return this.#words[this.#at + word];
  }

  /** An ordinary store, which the next `store` publishes. */
  prepare(word: number, value: number): void {
    this.#words[this.#at + word] = value;
  }

  store(word: number, value: number): void {
    storeRelease(this.#words, this.#at + word, value);
  }

  /**
   * Whether a word of 64 bits is not 0, by a glance. Its halves are loaded one by one, so this says
   * no more.
   */
  isSet(word: number): boolean {
    return (this.glance(word) | this.glance(word + 1)) !== 0;
  }

  /** Stores a word of 64 bits if it is what is expected. Returns whether it was. */
  exchange64(word: number, low: number, high: number, newLow: number, newHigh: number): boolean {
    compareSwap64(this.arena.memory, this.#offset + word * 4, low, high, newLow, newHigh);
    return (low64() | 0) === low && (high64() | 0) === high;
  }

  /** The other party is told with the next ring of its doorbell. */
  changed(): void {
    this.arena.changed(this.slot);
  }
}

/** Words of a flow, counted from its first. */
export const flowIndex = {
  written: flowWords.written / 4,
  base: flowWords.base / 4,
  from: flowWords.from / 4,
  until: flowWords.until / 4,
  wantsRoom: flowWords.wantsRoom / 4,
  isLost: flowWords.isLost / 4,
  read: flowWords.read / 4,
  looks: flowWords.looks / 4,
  isGone: flowWords.isGone / 4,
} as const;
