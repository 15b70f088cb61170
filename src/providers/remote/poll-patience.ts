// How a thread polls that finds nothing: at full speed as long as it has its processor to itself and does not wait for long,
// and with naps otherwise.
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
const WINDOW_NS = 20_000_000;
/** Then it stays so for a while; for longer if it was so before. */
const FIRST_CROWDED_NS = 20_000_000;
const LAST_CROWDED_NS = 320_000_000;

/** No longer, because the program may have more to look after than this CQ. */
const MAX_NAP_NS = 200_000;
const MIN_NAP_NS = 50_000;
/**
 * Where completions of late took so long, this share of it is slept through: being woken takes tens of microseconds, which is
 * over before the completion comes, and the processor is somebody else's meanwhile.
 */
const LONG_NS = 300_000;
const NAP_SHARE = 0.5;

export type PollAdvice = 'again' | 'look' | 'nap';

/** One for all CQs of a connection: who finds something in one of them is not waiting. */
export class PollPatience {
  readonly #now: () => number;
  /** How long to nap, after that advice. */
  napNs = 0;
  #polls = 0;
  /** Since when this wait lasts, if it is not a very short one, and what such waits take. */
  #waitingSinceNs = 0;
  #lastNs = 0;
  #expectedNs = 0;
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
    this.#learn(this.#waitingSinceNs === 0 ? 0 : this.#now() - this.#waitingSinceNs);
    this.#polls = 0;
    this.#clockNs = 0;
    this.#waitingSinceNs = 0;
  }

  /** Nothing was there. Pauses, so that a processor that shares the core with this one has it meanwhile. */
  failed(): PollAdvice {
    Atomics.pause();
    const polls = ++this.#polls;
    if (polls > MANY_POLLS) for (let times = 0; times < MORE_PAUSES; times++) Atomics.pause();
    if (polls % POLLS_A_CLOCK !== 0) return 'again';
    const nowNs = this.#now();
    if (this.#waitingSinceNs === 0) this.#waitingSinceNs = nowNs;
    if (this.#isCrowded(nowNs)) return this.#nap(MAX_NAP_NS);
    if (this.#isTight && this.#expectedNs > LONG_NS) {
      const spareNs = this.#expectedNs * NAP_SHARE - (nowNs - this.#waitingSinceNs);
      if (spareNs > MIN_NAP_NS) return this.#nap(Math.min(spareNs, MAX_NAP_NS));
    }
    return polls % POLLS_A_LOOK === 0 ? 'look' : 'again';
  }

  #nap(ns: number): PollAdvice {
    this.napNs = ns;
    this.#clockNs = 0;
    return 'nap';
  }

  /** The shorter of the last two: one long wait is no rule. */
  #learn(tookNs: number): void {
    this.#expectedNs = Math.min(tookNs, this.#lastNs);
    this.#lastNs = tookNs;
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
