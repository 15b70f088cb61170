// Lets a loop that spins give Node's event loop a turn now and then, and ends it when nothing moves
// any more.

import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { MillraceError } from '../errors.ts';
import { monotonicNs } from '../native/index.ts';

/**
 * A loop that moves something pauses at this interval, to see signals and the end of the peer's
 * connection.
 */
const busyNs = 100e6;
/**
 * A loop that waits pauses sooner and sleeps for 1 ms, because the peer may need this very
 * processor.
 */
const idleNs = 2e6;
const idleMs = 1;
/**
 * With coarse timers a nap takes much longer than asked for. A loop that spins for less than the
 * peer naps would nap in turn with it for ever, so it spins for this many naps.
 */
const napsToSpin = 4;
const longestIdleNs = 20e6;
const stalledNs = 20e9;

export class Pace {
  readonly #check: () => void;
  #pausedNs = monotonicNs();
  #movedNs = this.#pausedNs;
  #moves = -1;
  #isIdle = false;
  #idleNs = idleNs;

  /** `check` throws when the loop must end. */
  constructor(check: () => void) {
    this.#check = check;
  }

  /**
   * Whether it is time for `pause`. `moves` is any count that grows while things move. Cheap enough
   * for every 100th turn.
   */
  isDue(moves: number): boolean {
    const nowNs = monotonicNs();
    if (moves !== this.#moves) {
      this.#moves = moves;
      this.#movedNs = nowNs;
    }
    this.#isIdle = nowNs - this.#movedNs > this.#idleNs;
    return nowNs - this.#pausedNs > (this.#isIdle ? this.#idleNs : busyNs);
  }

  /** Throws when the loop must end, or when nothing has moved for long. */
  async pause(): Promise<void> {
    const startNs = monotonicNs();
    await (this.#isIdle ? sleep(idleMs) : nextTurn());
    this.#check();
    this.#pausedNs = monotonicNs();
    const napNs = this.#isIdle ? this.#pausedNs - startNs : 0;
    this.#idleNs = Math.min(longestIdleNs, Math.max(this.#idleNs, napsToSpin * napNs));
    if (this.#pausedNs - this.#movedNs < stalledNs) return;
    throw new MillraceError('MILLRACE_ERR_FAILED', `perf: nothing has moved for ${stalledNs / 1e9} s`);
  }
}
