// Runs a lane on Node's own event loop: the lane has the thread while it is busy, Node has it in between.

import { FdWatch, monotonicNs } from '../native/index.ts';
import type { EventLoop } from './event-loop.ts';

/** While busy, wait so long for the next event here rather than on the way through Node's loop, which costs two more calls. */
const LINGER_NS = 50_000;
/** Node's timers, signals and control connections wait for no longer than this. */
const SLICE_NS = 1_000_000;

export class LoopDriver implements Disposable {
  readonly #lane: EventLoop;
  readonly #watch: FdWatch;
  #immediate: NodeJS.Immediate | undefined;

  constructor(lane: EventLoop) {
    this.#lane = lane;
    this.#watch = FdWatch.start(lane.fd, () => this.#run());
    this.#watch.hold(true);
  }

  #run(): void {
    const endNs = monotonicNs() + SLICE_NS;
    while (this.#lane.turn(LINGER_NS) > 0 && monotonicNs() < endNs);
    if (this.#lane.hasWork) this.#immediate ??= setImmediate(() => this.#continue());
  }

  #continue(): void {
    this.#immediate = undefined;
    this.#run();
  }

  /** Before the lane is closed. */
  close(): void {
    this.#watch.close();
    clearImmediate(this.#immediate);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
