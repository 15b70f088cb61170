// Runs an event loop of ours on Node's: ours has the thread while it is busy, Node has it in
// between.

import type { EventLoop } from '../../src/loop/index.ts';
import { FdWatch, monotonicNs } from '../../src/native/index.ts';

/**
 * While busy, wait this long for the next event here: the way through Node's loop costs two more
 * system calls.
 */
const LINGER_NS = 50_000;
/** Node's timers, signals and sockets wait no longer than this. */
const SLICE_NS = 1_000_000;

export class LoopDriver implements Disposable {
  readonly #loop: EventLoop;
  readonly #watch: FdWatch;
  #immediate: NodeJS.Immediate | undefined;

  constructor(loop: EventLoop) {
    this.#loop = loop;
    this.#watch = FdWatch.start(loop.fd, () => this.#run());
    this.#watch.hold(true);
  }

  #run(): void {
    const endNs = monotonicNs() + SLICE_NS;
    while (this.#loop.turn(LINGER_NS) > 0 && monotonicNs() < endNs);
    if (this.#loop.hasWork) this.#immediate ??= setImmediate(() => this.#continue());
  }

  #continue(): void {
    this.#immediate = undefined;
    this.#run();
  }

  /** Call it before the loop is closed. */
  close(): void {
    this.#watch.close();
    clearImmediate(this.#immediate);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
