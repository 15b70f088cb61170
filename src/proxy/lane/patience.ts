// How long a lane looks for work before it sleeps, learnt from how long the work let it wait.
//
// To be woken costs tens of microseconds, more in a virtual machine whose processor has stopped. A lane that waits for the
// answer to one question gets it sooner by looking; one that has many things to do finds them together when it wakes,
// and looking would only take the time from the programs that it waits for. So would it when there is more to do on this
// machine than it has processors: whoever is interrupted while it looks stops looking, for longer each time.

/** `auto`: looked at most so long. */
const MAX_LOOK_NS = 300_000;
/** Things at once, from which on a lane is busy rather than waiting for an answer. */
const BUSY = 2;
/** Each wait counts for so much of what is known. */
const SHARE = 1 / 8;
/** Two looks so far apart: somebody else had the processor. */
const INTERRUPTED_NS = 100_000;
const FIRST_BAN_NS = 100_000_000;
const LAST_BAN_NS = 10_000_000_000;
/** Longer waits say no more than that it was long. */
const LONG_NS = 2_000_000;

export class Patience {
  /** Negative: learnt. */
  readonly #fixedNs: number;
  #waitNs = LONG_NS;
  #load = 0;
  #idleSinceNs = 0;
  /** Of this wait; 0 before the first. */
  #lookedNs = 0;
  #bannedUntilNs = 0;
  #banNs = FIRST_BAN_NS;

  constructor(spinUs: number | 'auto') {
    this.#fixedNs = spinUs === 'auto' ? -1 : spinUs * 1000;
  }

  /** So many things were found. */
  found(count: number, nowNs: number): void {
    if (this.#idleSinceNs === 0) return;
    const waitedNs = Math.min(LONG_NS, nowNs - this.#idleSinceNs);
    this.#idleSinceNs = 0;
    this.#lookedNs = 0;
    this.#waitNs += (waitedNs - this.#waitNs) * SHARE;
    this.#load += (count - this.#load) * SHARE;
  }

  /** Nothing was found: whether to look again rather than sleep. */
  lasts(nowNs: number): boolean {
    if (this.#idleSinceNs === 0) this.#idleSinceNs = nowNs;
    const idleNs = nowNs - this.#idleSinceNs;
    if (this.#fixedNs >= 0) return idleNs < this.#fixedNs;
    const mayLook = this.#waitNs < MAX_LOOK_NS && this.#load < BUSY && idleNs < MAX_LOOK_NS;
    if (!mayLook || nowNs < this.#bannedUntilNs) {
      this.#lookedNs = 0;
      return false;
    }
    if (this.#lookedNs !== 0 && nowNs - this.#lookedNs > INTERRUPTED_NS) {
      this.#ban(nowNs);
      return false;
    }
    this.#lookedNs = nowNs;
    return true;
  }

  #ban(nowNs: number): void {
    // Long since the last: things have changed.
    if (nowNs - this.#bannedUntilNs > LAST_BAN_NS) this.#banNs = FIRST_BAN_NS;
    this.#bannedUntilNs = nowNs + this.#banNs;
    this.#banNs = Math.min(LAST_BAN_NS, this.#banNs * 2);
    this.#lookedNs = 0;
  }
}
