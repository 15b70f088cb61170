// The loop of an engine while blocks move: an epoll of its own inside Node's event loop.
//
// Going through Node's loop costs some 10 us for every event. So while something moves, the loop waits in its own epoll and goes back
// to Node's only after a slice of time, for the control connection and its heartbeat.

import { FdWatch, monotonicNs, Poller, pollEvents } from '../../native/index.ts';
import type { Mover } from './mover.ts';

/** How long Node's own loop may have to wait. */
const SLICE_NS = 8e6;
/** Nothing for so long: Node's loop does the waiting. */
const PATIENCE_NS = 1e6;
const QUEUE_TOKEN = 0;
/** For movers: any other token. */
export const WIRE_TOKEN = 1;

export interface DataLoopOptions {
  readonly mover: Mover;
  /** The queue's eventfd for this side. Edge-triggered, so nobody needs to read it. */
  readonly queueFd: number;
  /** After each turn. It may stop the loop. */
  readonly onTurn: () => void;
  readonly onError: (error: unknown) => void;
}

export class DataLoop implements Disposable {
  readonly #options: DataLoopOptions;
  readonly #poller = Poller.create(8);
  readonly #watch: FdWatch;
  #again: NodeJS.Immediate | undefined;
  #isStopped = false;

  constructor(options: DataLoopOptions) {
    this.#options = options;
    this.#poller.add(options.queueFd, pollEvents.in | pollEvents.edge, QUEUE_TOKEN);
    options.mover.watch(this.#poller);
    this.#watch = FdWatch.start(this.#poller.fd, () => this.run());
    this.#watch.hold(true);
  }

  /** A turn now: something was changed that no descriptor tells. */
  run(): void {
    if (this.#isStopped) return;
    try {
      this.#run();
    } catch (error) {
      this.#options.onError(error);
    }
  }

  #run(): void {
    const { mover, onTurn } = this.#options;
    const endNs = monotonicNs() + SLICE_NS;
    let timeoutNs = 0;
    for (;;) {
      const count = this.#poller.wait(timeoutNs);
      const hasMore = mover.pump();
      onTurn();
      if (this.#isStopped) return;
      const isOver = monotonicNs() > endNs;
      if (hasMore || !mover.arm()) {
        timeoutNs = 0;
        if (!isOver) continue;
        this.#comeBack();
        return;
      }
      // What comes from here on makes the poller readable, and Node's loop calls.
      if (isOver || (count === 0 && timeoutNs > 0)) return;
      timeoutNs = PATIENCE_NS;
    }
  }

  #comeBack(): void {
    this.#again ??= setImmediate(() => {
      this.#again = undefined;
      this.run();
    });
  }

  stop(): void {
    if (this.#isStopped) return;
    this.#isStopped = true;
    clearImmediate(this.#again);
    this.#watch.close();
    this.#poller.close();
  }

  [Symbol.dispose](): void {
    this.stop();
  }
}
