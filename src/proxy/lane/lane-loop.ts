// The loop of a lane: all stages of all links, run to completion turn by turn; sleeps when there is nothing to do.

import type { Session } from '../../channel/index.ts';
import type { Lane } from '../../lane/index.ts';
import { monotonicNs } from '../../native/index.ts';
import type { Patience } from './patience.ts';

/** A link cannot sleep soundly: look again soon. */
const NAP_NS = 200_000;
/** After a look in vain, so many times it goes to sleep without one. */
const UNLUCKY_TURNS = 8;
/** While Node has something under way for us. */
const SHARED_NAP_NS = 100_000;

export interface LaneLoopOptions {
  readonly lane: Lane;
  readonly sessions: () => readonly Session[];
  readonly patience: Patience;
  /** False: the loop ends. */
  readonly isRunning: () => boolean;
  /** True while promises are awaited: Node's loop must have its turns. */
  readonly isAwaiting: () => boolean;
}

export class LaneLoop {
  readonly #options: LaneLoopOptions;
  turns = 0;
  sleeps = 0;

  constructor(options: LaneLoopOptions) {
    this.#options = options;
  }

  /** Returns when it is over, or when Node needs the thread: then it is to be run again. */
  run(): void {
    const { lane, patience, isRunning, isAwaiting } = this.#options;
    let timeoutNs = 0;
    let luck = 0;
    let isTrying = false;
    while (isRunning()) {
      this.turns++;
      let done = lane.turn(timeoutNs);
      const sessions = this.#options.sessions();
      for (let index = 0; index < sessions.length; index++) done += sessions[index].turn();
      timeoutNs = 0;
      if (isAwaiting()) {
        if (done === 0) lane.turn(SHARED_NAP_NS);
        return;
      }
      if (lane.hasWork) continue;
      if (done > 0) {
        patience.found(done, monotonicNs());
        // Whether it is worth a look before sleeping is what it was the last times.
        if (luck > 0) {
          isTrying = true;
          continue;
        }
        luck++;
      } else if (isTrying) {
        luck = -UNLUCKY_TURNS;
      }
      isTrying = false;
      if (patience.lasts(monotonicNs())) continue;
      timeoutNs = this.#sleepNs(sessions);
      if (timeoutNs < 0) this.sleeps++;
    }
  }

  #sleepNs(sessions: readonly Session[]): number {
    let mayBlock = true;
    for (let index = 0; index < sessions.length; index++) mayBlock = sessions[index].prepareSleep() && mayBlock;
    // Preparing may have found work.
    if (this.#options.lane.hasWork) return 0;
    return mayBlock ? -1 : NAP_NS;
  }
}
