// How many lines a peer may send: enough for any honest daemon, and too few to keep this one from
// its work.

import { ProtocolError } from '../errors.ts';

/** A full set of listeners takes 17 lines; a handshake of all links a few hundred. */
export const MAX_LINES_AT_ONCE = 4096;
export const MAX_LINES_PER_SECOND = 1024;

/** A token bucket: it fills with time, and each line takes one. */
export class LineBudget {
  #left = MAX_LINES_AT_ONCE;
  #filledMs: number;

  constructor(nowMs = performance.now()) {
    this.#filledMs = nowMs;
  }

  /** Throws a ProtocolError when there were too many. */
  spend(nowMs = performance.now()): void {
    const earned = ((nowMs - this.#filledMs) / 1000) * MAX_LINES_PER_SECOND;
    this.#left = Math.min(MAX_LINES_AT_ONCE, this.#left + earned) - 1;
    this.#filledMs = nowMs;
    if (this.#left < 0) throw new ProtocolError(`more than ${MAX_LINES_PER_SECOND} lines a second`);
  }
}
