// Overload: while the daemon has few descriptors left, it takes no more work that plain TCP can do.
// Lanes see to their own clients; peers are told here that nothing listens, and programs with the
// library that there is no room.

import type { Descriptors } from '../headroom/index.ts';
import { type DaemonStatus, publishError } from '../status/index.ts';
import { ErrorThrottle } from './control/index.ts';

const INTERVAL_MS = 250;

interface Follower {
  /** Whether peers and programs may bring more. */
  setRoom(hasRoom: boolean): void;
}

export class Overload implements Disposable {
  readonly #descriptors: Descriptors;
  readonly #listeners: Follower;
  readonly #timer: NodeJS.Timeout;
  /** A program that opens and closes connections makes no line for each time. */
  readonly #lines = new ErrorThrottle((message) => publishError({ where: 'daemon', message, code: '', peer: '' }));
  #wasShort = false;

  constructor(descriptors: Descriptors, listeners: Follower) {
    this.#descriptors = descriptors;
    this.#listeners = listeners;
    this.#timer = setInterval(() => this.#follow(), INTERVAL_MS);
  }

  get status(): DaemonStatus['overload'] {
    const descriptors = this.#descriptors.look();
    return { isOverloaded: this.#descriptors.isShort, descriptors, maxDescriptors: this.#descriptors.marks.limit };
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }

  #follow(): void {
    this.#descriptors.look();
    const { isShort, marks } = this.#descriptors;
    if (isShort === this.#wasShort) return;
    this.#wasShort = isShort;
    this.#listeners.setRoom(!isShort);
    this.#lines.report(
      isShort
        ? `overload: ${marks.short} or more of ${marks.limit} descriptors are in use; new connections are plain TCP (raise LimitNOFILE)`
        : `overload: there are enough descriptors again; new connections are carried`,
    );
  }
}
