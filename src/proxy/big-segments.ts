// How much TCP hands over at once between a program and the daemon: up to 512 KiB in place of the usual 64 KiB.
//
// Both are on this host, and what they say goes over its loopback device, which could always take more; only its limit
// says 64 KiB. It is raised for as long as the daemon runs. Connections take it when they are made.

import { type LinkNumber, readLink, writeLink } from '../native/index.ts';

/** In every network namespace. */
const LOOPBACK = 1;
const USUAL_BYTES = 65_536;
/** The kernel's most is 524,280. Nobody else would choose this number: where it is found, a daemon was killed. */
export const BIG_BYTES = 524_272;

export class BigSegments implements Disposable {
  readonly #before: ReadonlyMap<LinkNumber, number>;

  /** Throws a SystemError where the kernel or a missing privilege does not allow it. */
  static raise(): BigSegments {
    const found = [...readLink(LOOPBACK)].map(
      ([name, bytes]) => [name, bytes === BIG_BYTES ? USUAL_BYTES : bytes] as const,
    );
    // Who has set more than that keeps it.
    const before = new Map(found.filter(([, bytes]) => bytes < BIG_BYTES));
    const big = new Map([...before.keys()].map((name) => [name, BIG_BYTES] as const));
    if (big.size > 0) writeLink(LOOPBACK, big);
    return new BigSegments(before);
  }

  private constructor(before: ReadonlyMap<LinkNumber, number>) {
    this.#before = before;
  }

  /** Somebody's later choice is left alone. */
  [Symbol.dispose](): void {
    const now = readLink(LOOPBACK);
    const ours = new Map([...this.#before].filter(([name]) => now.get(name) === BIG_BYTES));
    if (ours.size > 0) writeLink(LOOPBACK, ours);
  }
}
