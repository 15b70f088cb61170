// The loop of a lane: all stages of all links, run to completion turn by turn. It spins or sleeps
// when there is nothing to do.

import type { Session } from '../channel/index.ts';
import type { EventLoop } from '../loop/index.ts';
import { monotonicNs, yieldProcessor } from '../native/index.ts';
import type { SpinPolicy } from '../spin/index.ts';
import type { Mirrors } from './mirrors.ts';

/** For a link that has nothing to do and cannot rely on being woken. */
const NAP_NS = 200_000;
/** While a promise is awaited, which needs Node's loop. */
const SHARED_NAP_NS = 100_000;

/** A session, as the loop sees it. */
export type LoopedSession = Pick<Session, 'turn' | 'prepareSleep'>;

/** The arenas of programs, as the loop sees them. */
type LoopedMirrors = Pick<Mirrors, 'collect' | 'ring' | 'prepareSleep'>;

interface LaneLoopOptions {
  readonly loop: Pick<EventLoop, 'turn' | 'hasWork'>;
  readonly sessions: () => readonly LoopedSession[];
  readonly mirrors: LoopedMirrors;
  readonly spinPolicy: SpinPolicy;
  /** False: the loop ends. */
  readonly isRunning: () => boolean;
  /** True while promises are awaited, which need Node's loop. */
  readonly isAwaiting: () => boolean;
}

export class LaneLoop {
  readonly #options: LaneLoopOptions;
  turns = 0;
  sleeps = 0;

  constructor(options: LaneLoopOptions) {
    this.#options = options;
  }

  /**
   * Returns when the lane ends, or when Node's loop needs the thread: then `run` is to be called
   * again.
   */
  run(): void {
    const { loop, mirrors, spinPolicy, isRunning, isAwaiting } = this.#options;
    let timeoutNs = 0;
    let hasPolled = false;
    while (isRunning()) {
      this.turns++;
      let done = loop.turn(timeoutNs);
      // Before the sessions, which send what was put into their rings.
      done += mirrors.collect();
      const sessions = this.#options.sessions();
      for (let index = 0; index < sessions.length; index++) done += sessions[index].turn();
      mirrors.ring();
      timeoutNs = 0;
      if (isAwaiting()) {
        if (done === 0) loop.turn(SHARED_NAP_NS);
        return;
      }
      if (loop.hasWork) continue;
      const nowNs = monotonicNs();
      if (done > 0) {
        hasPolled = false;
        spinPolicy.found(nowNs);
      }
      if (spinPolicy.maySpin(nowNs)) {
        spinPolicy.yielded(yieldProcessor(), nowNs);
        continue;
      }
      if (this.#maySleep(sessions)) {
        hasPolled = false;
        timeoutNs = -1;
        this.sleeps++;
      } else if (hasPolled) {
        timeoutNs = NAP_NS;
      } else {
        // As a rule, a record came at the last moment.
        hasPolled = true;
      }
    }
  }

  #maySleep(sessions: readonly LoopedSession[]): boolean {
    let mayBlock = true;
    for (let index = 0; index < sessions.length; index++) mayBlock = sessions[index].prepareSleep() && mayBlock;
    mayBlock = this.#options.mirrors.prepareSleep() && mayBlock;
    // Preparing to sleep may have found work.
    return mayBlock && !this.#options.loop.hasWork;
  }
}
