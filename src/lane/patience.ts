// How long a lane looks for work before it sleeps, learnt from how long the work let it wait.
//
// To be woken costs tens of microseconds, more in a virtual machine whose processor has stopped, and whoever wakes it
// pays as well. So a lane whose work comes soon goes on looking. Between two looks it yields the processor: a program that
// waits for it runs at once, and the lane then finds what that program did, all together.
//
// Who yields to one that never sleeps waits for milliseconds, where one that sleeps would be let in when it is woken: when
// that happens time and again, the lane does not look for a while, for longer and longer.

/** `auto`: looks while things come within so long, as a rule, */
const SOON_NS = 200_000;
/** and for so long at a time. */
const LOOK_NS = 50_000;
/** Each wait counts for so much of what is known. */
const SHARE = 1 / 8;
/** Longer waits say no more than that it was long. */
const LONG_NS = 2_000_000;

/** Somebody who had the processor for so long did not sleep meanwhile; or all of this machine stood still. */
const TAKEN_NS = 1_000_000;
/** It was somebody, and he will do it again. */
const TAKEN_IN_A_ROW = 3;
const SHORTEST_BAN_NS = 500_000_000;
const LONGEST_BAN_NS = 8_000_000_000;

export class Patience {
  /** Negative: learnt. */
  readonly #fixedNs: number;
  #waitNs = LONG_NS;
  #idleSinceNs = 0;
  #takenInARow = 0;
  #banNs = SHORTEST_BAN_NS;
  #bannedUntilNs = 0;

  constructor(spinUs: number | 'auto') {
    this.#fixedNs = spinUs === 'auto' ? -1 : spinUs * 1000;
  }

  /** There was something to do. */
  found(nowNs: number): void {
    if (this.#idleSinceNs === 0) return;
    const waitedNs = Math.min(LONG_NS, nowNs - this.#idleSinceNs);
    this.#idleSinceNs = 0;
    this.#waitNs += (waitedNs - this.#waitNs) * SHARE;
  }

  /** Nothing was found: whether to yield the processor and look again, rather than sleep. */
  lasts(nowNs: number): boolean {
    if (this.#idleSinceNs === 0) this.#idleSinceNs = nowNs;
    const idleNs = nowNs - this.#idleSinceNs;
    if (this.#fixedNs >= 0) return idleNs < this.#fixedNs;
    return this.#waitNs < SOON_NS && idleNs < LOOK_NS && nowNs >= this.#bannedUntilNs;
  }

  /** The processor was yielded, and others had it for so long. */
  yielded(takenNs: number, nowNs: number): void {
    if (takenNs < TAKEN_NS) {
      this.#takenInARow = 0;
      return;
    }
    this.#takenInARow++;
    if (this.#takenInARow < TAKEN_IN_A_ROW) return;
    this.#takenInARow = 0;
    // So soon after the last time: they are still at it.
    const isSame = nowNs - this.#bannedUntilNs < this.#banNs;
    this.#banNs = isSame ? Math.min(2 * this.#banNs, LONGEST_BAN_NS) : SHORTEST_BAN_NS;
    this.#bannedUntilNs = nowNs + this.#banNs;
  }
}
