// How a thread polls that finds nothing: at full speed as long as it has its processor to itself, and with naps when it has not.
//
// Who polls a device of its own does the device's work. Who polls a remote one waits for the backend's thread, and on a machine
// with more to do than it has processors, waiting at full speed keeps that very thread from running.

import { monotonicNs } from '../../native/index.ts';

/** So many polls in vain, about 10 us, and it is a long wait: then this many more pauses a poll, about 200 ns. */
const MANY_POLLS = 128;
const MORE_PAUSES = 5;
/** How often the clock is looked at, and how often it is looked after the backend: 512 polls are about 100 us. */
const POLLS_A_CLOCK = 64;
const POLLS_A_LOOK = 512;
/** So many polls in so short a time: the thread does nothing else. */
const TIGHT_NS = 64_000;
/** A thread that does nothing else, and took so long: somebody else had the processor. */
const INTERRUPTED_NS = 300_000;
/** It is crowded where that is so much of the time, over so long a time. */
const CROWDED_SHARE = 0.3;
const WINDOW_NS = 2_000_000;
/** Then it stays so for a while; for longer if it was so before. */
const FIRST_CROWDED_NS = 20_000_000;
const LAST_CROWDED_NS = 320_000_000;

export type PollAdvice = 'again' | 'look' | 'nap';

/** One for all CQs of a connection: who finds something in one of them is not waiting. */
export class PollPatience {
  readonly #now: () => number;
  #polls = 0;
  #clockNs = 0;
  #isTight = false;
  /** Of this window: time looked at, and time lost to others. */
  #watchedNs = 0;
  #lostNs = 0;
  #crowdedUntilNs = 0;
  #crowdedNs = FIRST_CROWDED_NS;

  /** `now` in ns. */
  constructor(now: () => number = monotonicNs) {
    this.#now = now;
  }

  /** Something was there. */
  found(): void {
    this.#polls = 0;
    this.#clockNs = 0;
  }

  /** Nothing was there. Pauses, so that a processor that shares the core with this one has it meanwhile. */
  failed(): PollAdvice {
    Atomics.pause();
    const polls = ++this.#polls;
    if (polls > MANY_POLLS) for (let times = 0; times < MORE_PAUSES; times++) Atomics.pause();
    if (polls % POLLS_A_CLOCK !== 0) return 'again';
    if (this.#isCrowded(this.#now())) {
      this.#clockNs = 0;
      return 'nap';
    }
    return polls % POLLS_A_LOOK === 0 ? 'look' : 'again';
  }

  #isCrowded(nowNs: number): boolean {
    const tookNs = this.#clockNs === 0 ? 0 : nowNs - this.#clockNs;
    this.#clockNs = nowNs;
    if (nowNs < this.#crowdedUntilNs) return true;
    const isInterrupted = tookNs > INTERRUPTED_NS;
    if (!isInterrupted) this.#isTight = tookNs > 0 && tookNs < TIGHT_NS;
    if (!this.#isTight) return false;
    this.#watchedNs += tookNs;
    if (isInterrupted) this.#lostNs += tookNs;
    if (this.#watchedNs < WINDOW_NS) return false;
    const isCrowded = this.#lostNs > this.#watchedNs * CROWDED_SHARE;
    this.#watchedNs = 0;
    this.#lostNs = 0;
    if (isCrowded) this.#crowd(nowNs);
    return isCrowded;
  }

  #crowd(nowNs: number): void {
    if (nowNs - this.#crowdedUntilNs > 2 * LAST_CROWDED_NS) this.#crowdedNs = FIRST_CROWDED_NS;
    this.#crowdedUntilNs = nowNs + this.#crowdedNs;
    this.#crowdedNs = Math.min(LAST_CROWDED_NS, 2 * this.#crowdedNs);
  }
}
