// Decides how a thread polls that may not sleep until it is woken, because its program has more to
// do than wait for this: at full speed while it has its processor to itself and waits are short,
// with naps otherwise.
//
// Whoever polls a device of its own does the device's work. Whoever polls a remote one waits for
// the backend's thread, and on a machine with more to do than it has processors, polling at full
// speed keeps that very thread from running.

import { BackOff, type BackOffTuning } from './back-off.ts';

export interface PollTuning {
  /** After so many misses a wait is a long one: each poll pauses so many times more. */
  readonly manyMisses: number;
  readonly morePauses: number;
  /**
   * After so many misses the clock is read, and after so many the other side is checked; the second
   * is a multiple of the first.
   */
  readonly missesPerClock: number;
  readonly missesPerCheck: number;
  /**
   * The misses between two readings of the clock take less than this in a thread that does nothing
   * else.
   */
  readonly tightNs: number;
  /** If they take longer than this in such a thread, it was interrupted. */
  readonly interruptionNs: number;
  /**
   * Interruptions that take more than this share of so long a time begin a back-off, in which the
   * thread naps.
   */
  readonly interruptedShare: number;
  readonly windowNs: number;
  readonly backOff: BackOffTuning;
  /** No longer, because the program may have other things to poll. */
  readonly maxNapNs: number;
  readonly minNapNs: number;
  /**
   * Where waits take longer than this, so much of each is slept through: being woken takes no time
   * from such a wait.
   */
  readonly longWaitNs: number;
  readonly napShare: number;
}

/** What to do after a miss: poll again, check that the other side is alive first, or nap first. */
export type PollAdvice = 'spin' | 'check' | 'nap';

/**
 * One for all queues that a thread polls: as long as it finds something in one of them, it is not
 * waiting.
 */
export class PollPolicy {
  readonly #tuning: PollTuning;
  readonly #backOff: BackOff;
  readonly #now: () => number;
  /** How long to nap, when that is the advice. */
  napNs = 0;
  /** Since the last hit. */
  #misses = 0;
  /** When this wait began, unless it is a very short one, and what the last such wait took. */
  #waitingSinceNs = 0;
  #lastWaitNs = 0;
  #expectedWaitNs = 0;
  #clockNs = 0;
  /** The thread does nothing but poll. */
  #isTight = false;
  /** Of this window: time that was watched, and the part that interruptions took. */
  #watchedNs = 0;
  #interruptedNs = 0;

  /** `now` in ns. */
  constructor(tuning: PollTuning, now: () => number) {
    this.#tuning = tuning;
    this.#backOff = new BackOff(tuning.backOff);
    this.#now = now;
  }

  /** A poll found something. */
  hit(): void {
    this.#learn(this.#waitingSinceNs === 0 ? 0 : this.#now() - this.#waitingSinceNs);
    this.#misses = 0;
    this.#clockNs = 0;
    this.#waitingSinceNs = 0;
  }

  /**
   * A poll found nothing. Pauses, so that a processor that shares the core with this one has it
   * meanwhile.
   */
  miss(): PollAdvice {
    const { manyMisses, morePauses, missesPerClock, missesPerCheck, longWaitNs, napShare, minNapNs, maxNapNs } =
      this.#tuning;
    Atomics.pause();
    const misses = ++this.#misses;
    if (misses > manyMisses) for (let times = 0; times < morePauses; times++) Atomics.pause();
    if (misses % missesPerClock !== 0) return 'spin';
    const nowNs = this.#now();
    if (this.#waitingSinceNs === 0) this.#waitingSinceNs = nowNs;
    if (this.#isBackingOff(nowNs)) return this.#nap(maxNapNs);
    if (this.#isTight && this.#expectedWaitNs > longWaitNs) {
      const leftNs = this.#expectedWaitNs * napShare - (nowNs - this.#waitingSinceNs);
      if (leftNs > minNapNs) return this.#nap(Math.min(leftNs, maxNapNs));
    }
    return misses % missesPerCheck === 0 ? 'check' : 'spin';
  }

  #nap(ns: number): PollAdvice {
    this.napNs = ns;
    this.#clockNs = 0;
    return 'nap';
  }

  /** Expects the shorter of the last two: one long wait is no rule. */
  #learn(tookNs: number): void {
    this.#expectedWaitNs = Math.min(tookNs, this.#lastWaitNs);
    this.#lastWaitNs = tookNs;
  }

  #isBackingOff(nowNs: number): boolean {
    const { tightNs, interruptionNs, interruptedShare, windowNs } = this.#tuning;
    const tookNs = this.#clockNs === 0 ? 0 : nowNs - this.#clockNs;
    this.#clockNs = nowNs;
    if (this.#backOff.isActive(nowNs)) return true;
    const isInterrupted = tookNs > interruptionNs;
    if (!isInterrupted) this.#isTight = tookNs > 0 && tookNs < tightNs;
    if (!this.#isTight) return false;
    this.#watchedNs += tookNs;
    if (isInterrupted) this.#interruptedNs += tookNs;
    if (this.#watchedNs < windowNs) return false;
    const isCrowded = this.#interruptedNs > this.#watchedNs * interruptedShare;
    this.#watchedNs = 0;
    this.#interruptedNs = 0;
    if (isCrowded) this.#backOff.begin(nowNs);
    return isCrowded;
  }
}
