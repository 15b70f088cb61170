// Decides whether a thread that waits for work spins or sleeps next, learnt from how long waits
// took lately.
//
// Being woken costs tens of microseconds, more in a virtual machine whose processor has stopped,
// and spinning costs a processor. So a thread spins where its work comes soon, for about as long as
// that takes. It stops where spinning takes the processor from those it waits for: after
// interruptions it backs off for a time, and after spin misses it sleeps through the next waits.

import { BackOff, type BackOffTuning } from './back-off.ts';

export interface SpinTuning {
  /** What waits are taken to last until some were seen. */
  readonly assumedWaitNs: number;
  /** Longer waits count as this long. */
  readonly maxWaitNs: number;
  /** Each wait counts for so much of the average. */
  readonly share: number;
  /** What being woken takes, about: it is no part of the wait. */
  readonly wakeNs: number;
  /** Spinning is worth it where waits are shorter than this on average. */
  readonly worthwhileNs: number;
  /** Spins last for twice the average wait and this much more, */
  readonly spareNs: number;
  /** and no longer than this. */
  readonly maxSpinNs: number;
  /**
   * An interruption: two spins are so far apart that somebody else had the processor. It begins a
   * back-off.
   */
  readonly interruptionNs: number;
  /** A yield that takes so long was to a task that does not sleep. It begins a back-off. */
  readonly longYieldNs: number;
  readonly backOff: BackOffTuning;
  /** In a back-off only waits shorter than this are spun through. */
  readonly backOffSpinNs: number;
  /**
   * From two spin misses in a row on, up to this many, n misses make the next 2^n waits be slept
   * through.
   */
  readonly maxMisses: number;
}

export class SpinPolicy {
  readonly #tuning: SpinTuning;
  readonly #backOff: BackOff;
  /** How long each wait is spun through; negative: learnt. */
  readonly #fixedNs: number;
  #averageNs: number;
  /** When this wait began; 0 between waits. */
  #sinceNs = 0;
  /** When this wait was last spun; 0 when the thread sleeps. */
  #spunNs = 0;
  #hasSpun = false;
  #isInterrupted = false;
  /** In a row. */
  #misses = 0;
  /** Waits that are still to be slept through. */
  #sleepWaits = 0;

  /**
   * `spinNs`: how long each wait is spun through; without it, that is learnt. 0 never spins, and
   * Infinity never sleeps.
   */
  constructor(tuning: SpinTuning, spinNs?: number) {
    this.#tuning = tuning;
    this.#backOff = new BackOff(tuning.backOff);
    this.#fixedNs = spinNs ?? -1;
    this.#averageNs = tuning.assumedWaitNs;
  }

  /** There is no work: whether to spin rather than sleep. */
  maySpin(nowNs: number): boolean {
    if (this.#fixedNs === 0 || this.#fixedNs === Number.POSITIVE_INFINITY) return this.#fixedNs > 0;
    if (this.#sinceNs === 0) this.#sinceNs = nowNs;
    if (this.#fixedNs >= 0) return nowNs - this.#sinceNs < this.#fixedNs;
    // Between two spins, and not after a sleep, which is meant to take long.
    if (this.#spunNs !== 0 && nowNs - this.#spunNs > this.#tuning.interruptionNs) {
      this.#isInterrupted = true;
      this.#backOff.begin(nowNs);
    }
    const maySpin = this.#isWorthwhile(nowNs);
    if (maySpin) this.#hasSpun = true;
    this.#spunNs = maySpin ? nowNs : 0;
    return maySpin;
  }

  /** There is work. */
  found(nowNs: number): void {
    if (this.#sinceNs === 0) return;
    const isHit = this.#spunNs !== 0;
    const { maxWaitNs, wakeNs, share } = this.#tuning;
    const waitedNs = Math.max(0, Math.min(maxWaitNs, nowNs - this.#sinceNs) - (isHit ? 0 : wakeNs));
    this.#countMisses(isHit);
    this.#sinceNs = 0;
    this.#spunNs = 0;
    // How long an interrupted wait would have taken is not known.
    if (!this.#isInterrupted) this.#averageNs += (waitedNs - this.#averageNs) * share;
    this.#isInterrupted = false;
  }

  /** The thread yielded the processor between two spins, and others had it for so long. */
  yielded(takenNs: number, nowNs: number): void {
    if (takenNs >= this.#tuning.longYieldNs) this.#backOff.begin(nowNs);
  }

  get isWaiting(): boolean {
    return this.#sinceNs !== 0;
  }

  /** What waits take, as far as it was learnt. */
  get averageNs(): number {
    return this.#averageNs;
  }

  /** Misses in a row: whoever brings the work may be waiting for this very processor. */
  #countMisses(isHit: boolean): void {
    if (this.#sleepWaits > 0) this.#sleepWaits--;
    if (!this.#hasSpun) return;
    this.#hasSpun = false;
    this.#misses = isHit ? 0 : Math.min(this.#tuning.maxMisses, this.#misses + 1);
    if (this.#misses > 1) this.#sleepWaits = 2 ** this.#misses;
  }

  #isWorthwhile(nowNs: number): boolean {
    if (this.#sleepWaits > 0) return false;
    const { worthwhileNs, spareNs, maxSpinNs, backOffSpinNs } = this.#tuning;
    const waitedNs = nowNs - this.#sinceNs;
    if (this.#backOff.isActive(nowNs)) return this.#averageNs < backOffSpinNs && waitedNs < backOffSpinNs;
    return this.#averageNs < worthwhileNs && waitedNs < Math.min(maxSpinNs, 2 * this.#averageNs + spareNs);
  }
}
