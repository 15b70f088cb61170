// An event loop: one thread's epoll and everything it watches, run to completion event by event.

import { Poller } from '../native/index.ts';

/**
 * The owner of a watched descriptor. It reads or writes until the kernel has no more
 * (edge-triggered).
 */
export interface Watched {
  onEvents(events: number): void;
}

/** Something that stopped so that others have a turn. */
export interface Resumable {
  resume(): void;
}

const EVENTS_PER_TURN = 256;

export class EventLoop implements Disposable {
  readonly #poller = Poller.create(EVENTS_PER_TURN);
  readonly #watched: (Watched | undefined)[] = [];
  readonly #freeTokens: number[] = [];
  /** Free at the end of the turn: until then, events of this turn may still carry them. */
  readonly #leavingTokens: number[] = [];
  #waiting: Resumable[] = [];
  #resuming: Resumable[] = [];

  /** Readable while events wait, so that this loop can be driven by another one. */
  get fd(): number {
    return this.#poller.fd;
  }

  /** True when the next turn has something to do whatever the descriptors say. */
  get hasWork(): boolean {
    return this.#waiting.length > 0;
  }

  /** The token is for `unwatch`. */
  watch(fd: number, events: number, watched: Watched): number {
    const token = this.#freeTokens.pop() ?? this.#watched.length;
    this.#watched[token] = watched;
    try {
      this.#poller.add(fd, events, token);
    } catch (error) {
      this.#watched[token] = undefined;
      this.#freeTokens.push(token);
      throw error;
    }
    return token;
  }

  /** Before the descriptor is closed. */
  unwatch(fd: number, token: number): void {
    this.#poller.remove(fd);
    this.forget(token);
  }

  /**
   * As unwatch, for a descriptor that is closed at once and has no duplicate: then the kernel
   * forgets it as well.
   */
  forget(token: number): void {
    this.#watched[token] = undefined;
    this.#leavingTokens.push(token);
  }

  /** Resumes it in the next turn, after all events of that turn. */
  again(resumable: Resumable): void {
    this.#waiting.push(resumable);
  }

  /**
   * Waits for events for so long (negative: for ever) and handles them. Returns how many there
   * were.
   */
  turn(timeoutNs: number): number {
    const resuming = this.#waiting;
    this.#waiting = this.#resuming;
    this.#resuming = resuming;
    const count = this.#poller.wait(resuming.length > 0 ? 0 : timeoutNs);
    for (let index = 0; index < count; index++) {
      this.#watched[this.#poller.token(index)]?.onEvents(this.#poller.events(index));
    }
    const resumed = resuming.length;
    // Emptying an array takes V8 longer than the rest of an idle turn, so an empty one is left
    // alone.
    if (resumed > 0) {
      for (let index = 0; index < resumed; index++) resuming[index].resume();
      resuming.length = 0;
    }
    if (this.#leavingTokens.length > 0) this.#freeLeaving();
    return count + resumed;
  }

  #freeLeaving(): void {
    for (let index = 0; index < this.#leavingTokens.length; index++) this.#freeTokens.push(this.#leavingTokens[index]);
    this.#leavingTokens.length = 0;
  }

  close(): void {
    this.#poller.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
