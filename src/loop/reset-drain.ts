// Drains connections that were reset and still have bytes for their receiver: checks on them until
// all are acknowledged, or until none has moved for a while.

import { pollEvents, TimerFd } from '../native/index.ts';
import type { EventLoop, Watched } from './event-loop.ts';

const CHECK_NS = 5_000_000;
/**
 * After so many checks without progress the receiver has stopped, and plain TCP would drop the
 * rest, too.
 */
const MAX_IDLE_CHECKS = 20;

export interface Draining {
  readonly isClosed: boolean;
  /**
   * Sends what can be sent now, and returns how many bytes are not acknowledged yet. Closes when
   * all are.
   */
  drain(): number;
  /** Closes, whatever is left. */
  giveUp(): void;
}

interface Progress {
  waitingBytes: number;
  idleChecks: number;
}

export class ResetDrain implements Watched, Disposable {
  readonly #loop: EventLoop;
  readonly #draining = new Map<Draining, Progress>();
  readonly #timer = TimerFd.create();
  readonly #token: number;

  constructor(loop: EventLoop) {
    this.#loop = loop;
    this.#token = loop.watch(this.#timer.fd, pollEvents.in, this);
  }

  /** Adding it again changes nothing. */
  add(connection: Draining): void {
    if (this.#draining.has(connection)) return;
    if (this.#draining.size === 0) this.#timer.set(CHECK_NS, CHECK_NS);
    this.#draining.set(connection, { waitingBytes: -1, idleChecks: 0 });
  }

  onEvents(): void {
    this.#timer.take();
    for (const [connection, progress] of this.#draining) {
      if (!connection.isClosed) this.#check(connection, progress);
      if (connection.isClosed) this.#draining.delete(connection);
    }
    if (this.#draining.size === 0) this.#timer.set(0);
  }

  #check(connection: Draining, progress: Progress): void {
    const waitingBytes = connection.drain();
    progress.idleChecks = waitingBytes === progress.waitingBytes ? progress.idleChecks + 1 : 0;
    progress.waitingBytes = waitingBytes;
    if (progress.idleChecks >= MAX_IDLE_CHECKS) connection.giveUp();
  }

  close(): void {
    if (this.#timer.isClosed) return;
    this.#loop.unwatch(this.#timer.fd, this.#token);
    this.#timer.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
