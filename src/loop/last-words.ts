// Connections that were reset and still have something to deliver: looked at until it is there, or until nothing moves.

import { pollEvents, TimerFd } from '../native/index.ts';
import type { EventLoop, Watched } from './event-loop.ts';

const LOOK_NS = 5_000_000;
/** So many looks without progress: the receiver has stopped, and plain TCP would drop the rest, too. */
const PATIENCE_LOOKS = 20;

export interface Dying {
  readonly isClosed: boolean;
  /** Delivers what can be now, and says how many bytes are not with their receiver yet. Closes when all are. */
  deliverLast(): number;
  /** Closes, whatever is left. */
  giveUp(): void;
}

interface Watch {
  waitingBytes: number;
  idleLooks: number;
}

export class LastWords implements Watched, Disposable {
  readonly #lane: EventLoop;
  readonly #dying = new Map<Dying, Watch>();
  readonly #timer = TimerFd.create();
  readonly #token: number;

  constructor(lane: EventLoop) {
    this.#lane = lane;
    this.#token = lane.watch(this.#timer.fd, pollEvents.in, this);
  }

  lookAfter(one: Dying): void {
    if (this.#dying.has(one)) return;
    if (this.#dying.size === 0) this.#timer.set(LOOK_NS, LOOK_NS);
    this.#dying.set(one, { waitingBytes: -1, idleLooks: 0 });
  }

  onEvents(): void {
    this.#timer.take();
    for (const [one, watch] of this.#dying) {
      if (!one.isClosed) this.#look(one, watch);
      if (one.isClosed) this.#dying.delete(one);
    }
    if (this.#dying.size === 0) this.#timer.set(0);
  }

  #look(one: Dying, watch: Watch): void {
    const waitingBytes = one.deliverLast();
    watch.idleLooks = waitingBytes === watch.waitingBytes ? watch.idleLooks + 1 : 0;
    watch.waitingBytes = waitingBytes;
    if (watch.idleLooks >= PATIENCE_LOOKS) one.giveUp();
  }

  close(): void {
    if (this.#timer.isClosed) return;
    this.#lane.unwatch(this.#timer.fd, this.#token);
    this.#timer.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
