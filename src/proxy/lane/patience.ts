// How long a lane looks for work before it sleeps, learnt from how long the work let it wait.
//
// To be woken costs tens of microseconds, more in a virtual machine whose processor has stopped. A lane that waits for the
// answer to one question gets it sooner by looking; one that has many things to do finds them together when it wakes,
// and looking would only take the time from the programs that it waits for.

/** `auto`: looked at most so long. */
const MAX_LOOK_NS = 300_000;
/** Things at once, from which on a lane is busy rather than waiting for an answer. */
const BUSY = 2;
/** Each wait counts for so much of what is known. */
const SHARE = 1 / 8;
/** Longer waits say no more than that it was long. */
const LONG_NS = 2_000_000;

export class Patience {
  /** Negative: learnt. */
  readonly #fixedNs: number;
  #waitNs = LONG_NS;
  #load = 0;
  #idleSinceNs = 0;

  constructor(spinUs: number | 'auto') {
    this.#fixedNs = spinUs === 'auto' ? -1 : spinUs * 1000;
  }

  /** So many things were found. */
  found(count: number, nowNs: number): void {
    if (this.#idleSinceNs === 0) return;
    const waitedNs = Math.min(LONG_NS, nowNs - this.#idleSinceNs);
    this.#idleSinceNs = 0;
    this.#waitNs += (waitedNs - this.#waitNs) * SHARE;
    this.#load += (count - this.#load) * SHARE;
  }

  /** Nothing was found: whether to look again rather than sleep. */
  lasts(nowNs: number): boolean {
    if (this.#idleSinceNs === 0) this.#idleSinceNs = nowNs;
    const idleNs = nowNs - this.#idleSinceNs;
    if (this.#fixedNs >= 0) return idleNs < this.#fixedNs;
    return this.#waitNs < MAX_LOOK_NS && this.#load < BUSY && idleNs < MAX_LOOK_NS;
  }
}
