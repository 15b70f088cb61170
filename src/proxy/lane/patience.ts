// How long a lane looks for work before it sleeps, learnt from how long the work let it wait.
//
// To be woken costs tens of microseconds, more in a virtual machine whose processor has stopped. A lane that waits for the
// answer to one question gets it sooner by looking. One that serves several streams, or has many things to do at once, finds
// them together when it wakes, and to look for long would only take the time from the programs that it waits for: it looks
// briefly, for what is about to come. So does one that was interrupted while it looked, for a while: there is more to do on
// this machine than it has processors.

/** `auto`: looked at most so long for an answer, */
const MAX_LOOK_NS = 300_000;
/** and so long for anything else. */
const BRIEF_LOOK_NS = 5000;
/** Things at once, from which on a lane is busy rather than waiting for an answer. */
const BUSY = 2;
/** So is one whose waits end with another stream than the last more often than this. */
const MANY_STREAMS = 0.5;
/** Each wait counts for so much of what is known. */
const SHARE = 1 / 8;
/** Two looks so far apart: somebody else had the processor. */
const INTERRUPTED_NS = 100_000;
const BAN_NS = 100_000_000;
/** Longer waits say no more than that it was long. */
const LONG_NS = 2_000_000;

export class Patience {
  /** Negative: learnt. */
  readonly #fixedNs: number;
  #waitNs = LONG_NS;
  #load = 0;
  /** Of the waits, how many ended with another stream than the one before. */
  #switching = 0;
  #switches = 0;
  #idleSinceNs = 0;
  /** Of this wait; 0 before the first. */
  #lookedNs = 0;
  #bannedUntilNs = 0;

  constructor(spinUs: number | 'auto') {
    this.#fixedNs = spinUs === 'auto' ? -1 : spinUs * 1000;
  }

  /** So many things were found. `switches`: how often, since the start, another stream than the last had its turn. */
  found(count: number, switches: number, nowNs: number): void {
    if (this.#idleSinceNs === 0) return;
    const waitedNs = Math.min(LONG_NS, nowNs - this.#idleSinceNs);
    this.#idleSinceNs = 0;
    this.#lookedNs = 0;
    this.#waitNs += (waitedNs - this.#waitNs) * SHARE;
    this.#load += (count - this.#load) * SHARE;
    this.#switching += ((switches === this.#switches ? 0 : 1) - this.#switching) * SHARE;
    this.#switches = switches;
  }

  /** Nothing was found: whether to look again rather than sleep. */
  lasts(nowNs: number): boolean {
    if (this.#idleSinceNs === 0) this.#idleSinceNs = nowNs;
    const idleNs = nowNs - this.#idleSinceNs;
    if (this.#fixedNs >= 0) return idleNs < this.#fixedNs;
    // Nothing came soon, the last times.
    if (this.#waitNs >= MAX_LOOK_NS) return false;
    const isAnswerDue = this.#load < BUSY && this.#switching < MANY_STREAMS;
    if (!isAnswerDue || nowNs < this.#bannedUntilNs) return idleNs < BRIEF_LOOK_NS;
    if (this.#lookedNs !== 0 && nowNs - this.#lookedNs > INTERRUPTED_NS) {
      this.#bannedUntilNs = nowNs + BAN_NS;
      this.#lookedNs = 0;
      return false;
    }
    const isLooking = idleNs < MAX_LOOK_NS;
    // What it sleeps from here on is no interruption.
    this.#lookedNs = isLooking ? nowNs : 0;
    return isLooking;
  }
}
