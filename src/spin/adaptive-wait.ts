// Whether to look again or to sleep, while waiting for the other side: learnt from how long it took lately.
//
// Being woken costs tens of microseconds, and looking costs a processor. `mixed` looks for as long as the answers of late would
// have come meanwhile, and not at all when they take long. Who finds that somebody else had the processor while it looked
// looks only where answers come at once, for a while: looking would take the time from the one it waits for.

import { UsageError } from '../errors.ts';

export const waitModes = ['mixed', 'spin', 'event'] as const;
export type WaitMode = (typeof waitModes)[number];

/** `mixed` looks at most so long, and only where waits are shorter than this on average. */
const MAX_LOOK_NS = 100_000;
/** On top of twice the average, so that a short average does not forbid the next wait. */
const SPARE_NS = 10_000;
/** Longer waits say no more than that it was long. */
const LONG_NS = 400_000;
/** Each wait counts for so much of what is known. */
const SHARE = 1 / 4;
/** Two looks so far apart: somebody else had the processor. */
const INTERRUPTED_NS = 500_000;
const MAX_VAIN = 6;
const FIRST_BAN_NS = 5_000_000;
const LAST_BAN_NS = 20_000_000;
/** What being woken takes, about: it is not the other side that was waited for. */
const WAKE_NS = 50_000;

export class AdaptiveWait {
  readonly #mode: WaitMode;
  #averageNs = 0;
  #startNs = 0;
  #lookedNs = 0;
  #bannedUntilNs = 0;
  #banNs = FIRST_BAN_NS;
  /** In this wait. */
  #hasLooked = false;
  #isInterrupted = false;
  /** Looks in vain, one after the other, and how many waits are to be slept through for that. */
  #vain = 0;
  #unlucky = 0;

  constructor(mode: WaitMode = 'mixed') {
    if (!waitModes.includes(mode)) {
      throw new UsageError(`wait mode '${String(mode)}': expected ${waitModes.join(', ')}`);
    }
    this.#mode = mode;
  }

  /** There is nothing yet: whether to look again rather than sleep. */
  mayLook(nowNs: number): boolean {
    if (this.#mode !== 'mixed') return this.#mode === 'spin';
    if (this.#startNs === 0) this.#startNs = nowNs;
    // Not after a sleep, which is meant to take long.
    if (this.#lookedNs !== 0 && nowNs - this.#lookedNs > INTERRUPTED_NS) {
      this.#isInterrupted = true;
      this.#ban(nowNs);
    }
    const mayLook = this.#mayLook(nowNs);
    if (mayLook) this.#hasLooked = true;
    this.#lookedNs = mayLook ? nowNs : 0;
    return mayLook;
  }

  /** What was waited for has come. */
  found(nowNs: number): void {
    if (this.#startNs === 0) return;
    // Not looking any more means that it slept.
    const wakeNs = this.#lookedNs === 0 ? WAKE_NS : 0;
    const waitedNs = Math.max(0, Math.min(LONG_NS, nowNs - this.#startNs) - wakeNs);
    this.#learnLuck();
    this.#startNs = 0;
    this.#lookedNs = 0;
    // Who was interrupted does not know how long it would have taken.
    if (!this.#isInterrupted) this.#averageNs += (waitedNs - this.#averageNs) * SHARE;
    this.#isInterrupted = false;
  }

  get isWaiting(): boolean {
    return this.#startNs !== 0;
  }

  /** What waits take, as far as it is known. */
  get averageNs(): number {
    return this.#averageNs;
  }

  /**
   * Looking in vain, time after time: then the other side may be waiting for this very processor. So the next waits are slept
   * through, twice as many each time.
   */
  #learnLuck(): void {
    if (this.#unlucky > 0) this.#unlucky--;
    if (!this.#hasLooked) return;
    this.#hasLooked = false;
    this.#vain = this.#lookedNs === 0 ? Math.min(MAX_VAIN, this.#vain + 1) : 0;
    if (this.#vain > 1) this.#unlucky = 2 ** this.#vain;
  }

  #mayLook(nowNs: number): boolean {
    if (this.#unlucky > 0) return false;
    const waitedNs = nowNs - this.#startNs;
    if (nowNs < this.#bannedUntilNs) return this.#averageNs < SPARE_NS && waitedNs < SPARE_NS;
    return this.#averageNs < MAX_LOOK_NS && waitedNs < Math.min(MAX_LOOK_NS, 2 * this.#averageNs + SPARE_NS);
  }

  /** For longer each time, unless it is long since the last. */
  #ban(nowNs: number): void {
    if (nowNs - this.#bannedUntilNs > 2 * LAST_BAN_NS) this.#banNs = FIRST_BAN_NS;
    this.#bannedUntilNs = nowNs + this.#banNs;
    this.#banNs = Math.min(LAST_BAN_NS, 2 * this.#banNs);
  }
}
