// The loop of a lane: all stages of all links, run to completion turn by turn; sleeps when there is nothing to do.

import type { Session } from '../channel/index.ts';
import type { EventLoop } from '../loop/index.ts';
import { monotonicNs, yieldProcessor } from '../native/index.ts';
import type { Patience } from './patience.ts';

/** A link cannot sleep soundly, and has nothing to do: look again soon. */
const NAP_NS = 200_000;
/** While Node has something under way for us. */
const SHARED_NAP_NS = 100_000;

/** A session, as the loop sees it. */
export type LoopedSession = Pick<Session, 'turn' | 'prepareSleep'>;

export interface LaneLoopOptions {
  readonly loop: Pick<EventLoop, 'turn' | 'hasWork'>;
  readonly sessions: () => readonly LoopedSession[];
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
    const { loop, patience, isRunning, isAwaiting } = this.#options;
    let timeoutNs = 0;
    let hasLooked = false;
    while (isRunning()) {
      this.turns++;
      let done = loop.turn(timeoutNs);
      const sessions = this.#options.sessions();
      for (let index = 0; index < sessions.length; index++) done += sessions[index].turn();
      timeoutNs = 0;
      if (isAwaiting()) {
        if (done === 0) loop.turn(SHARED_NAP_NS);
        return;
      }
      if (loop.hasWork) continue;
      const nowNs = monotonicNs();
      if (done > 0) {
        hasLooked = false;
        patience.found(nowNs);
      }
      if (patience.lasts(nowNs)) {
        patience.yielded(yieldProcessor(), nowNs);
        continue;
      }
      if (this.#maySleep(sessions)) {
        hasLooked = false;
        timeoutNs = -1;
        this.sleeps++;
      } else if (hasLooked) {
        timeoutNs = NAP_NS;
      } else {
        // As a rule, something came at the last moment.
        hasLooked = true;
      }
    }
  }

  #maySleep(sessions: readonly LoopedSession[]): boolean {
    let mayBlock = true;
    for (let index = 0; index < sessions.length; index++) mayBlock = sessions[index].prepareSleep() && mayBlock;
    // Preparing may have found work.
    return mayBlock && !this.#options.loop.hasWork;
  }
}
