// The loop of an engine while blocks move: an epoll of its own inside Node's event loop.
//
// Going through Node's event loop costs some 10 us for every event. So while blocks move, the loop
// waits in its own epoll, and returns to Node's only after a slice of time, for the control
// connection and its heartbeat.

import { FdWatch, monotonicNs, Poller, pollEvents } from '../../../native/index.ts';
import { tunings } from '../../../spin/index.ts';
import type { Mover } from '../movers/mover.ts';

const { sleepNs, sliceNs } = tunings.vortexEngine;
const QUEUE_TOKEN = 0;

interface EngineLoopOptions {
  readonly mover: Mover;
  /** The queue's doorbell for this end. It is watched edge-triggered, so it need not be read. */
  readonly queueFd: number;
  /** After each turn. It may stop the loop. */
  readonly onTurn: () => void;
  readonly onError: (error: unknown) => void;
}

export class EngineLoop implements Disposable {
  readonly #options: EngineLoopOptions;
  readonly #poller = Poller.create(8);
  readonly #watch: FdWatch;
  #again: NodeJS.Immediate | undefined;
  #isStopped = false;

  constructor(options: EngineLoopOptions) {
    this.#options = options;
    this.#poller.add(options.queueFd, pollEvents.in | pollEvents.edge, QUEUE_TOKEN);
    options.mover.watch(this.#poller);
    this.#watch = FdWatch.start(this.#poller.fd, () => this.run());
    this.#watch.hold(true);
  }

  /** Runs a turn now: something has changed that makes no descriptor readable. */
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
    const endNs = monotonicNs() + sliceNs;
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
        this.#runSoon();
        return;
      }
      // Events from here on make the poller readable, and Node's event loop calls `run`.
      if (isOver || (count === 0 && timeoutNs > 0)) return;
      timeoutNs = sleepNs;
    }
  }

  #runSoon(): void {
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
