// Overload: while the daemon has few descriptors left, it takes no more work that plain TCP can do.
// Lanes see to their own clients; peers are told here that nothing listens, and programs with the
// library that there is no room.

import type { Descriptors } from '../headroom/index.ts';
import type { DaemonStatus } from '../status/index.ts';
import { throttled } from './report-error.ts';

interface Follower {
  /** Whether peers and programs may bring more. */
  setRoom(hasRoom: boolean): void;
}

export class Overload {
  readonly #descriptors: Descriptors;
  readonly #listeners: Follower;
  /** A program that opens and closes connections makes no line for each time. */
  readonly #lines = throttled('daemon');
  #wasShort = false;

  constructor(descriptors: Descriptors, listeners: Follower) {
    this.#descriptors = descriptors;
    this.#listeners = listeners;
  }

  get status(): DaemonStatus['overload'] {
    const descriptors = this.#descriptors.look();
    return { isOverloaded: this.#descriptors.isShort, descriptors, maxDescriptors: this.#descriptors.marks.limit };
  }

  /** Call it now and then. */
  look(): void {
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
