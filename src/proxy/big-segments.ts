// Raises the largest TCP segment between programs and the daemon from 64 KiB to 512 KiB while the
// daemon runs.
//
// These segments cross the loopback device of this host, which could take larger ones; only its
// limits (gso_max_size and gso_ipv4_max_size) say 64 KiB. A connection uses the limit of the moment
// when it is made.

import { type LinkNumber, readLink, writeLink } from '../native/index.ts';

/** The index of the loopback device in every network namespace. */
const LOOPBACK = 1;
const USUAL_BYTES = 65_536;
/**
 * The kernel allows 524,280. This unusual number marks a limit that a killed daemon left behind.
 */
export const BIG_BYTES = 524_272;

export class BigSegments implements Disposable {
  readonly #before: ReadonlyMap<LinkNumber, number>;

  /** Throws a SystemError where the kernel or a missing privilege does not allow it. */
  static raise(): BigSegments {
    const found = [...readLink(LOOPBACK)].map(
      ([name, bytes]) => [name, bytes === BIG_BYTES ? USUAL_BYTES : bytes] as const,
    );
    // A limit that is larger already stays as it is.
    const before = new Map(found.filter(([, bytes]) => bytes < BIG_BYTES));
    const big = new Map([...before.keys()].map((name) => [name, BIG_BYTES] as const));
    if (big.size > 0) writeLink(LOOPBACK, big);
    return new BigSegments(before);
  }

  private constructor(before: ReadonlyMap<LinkNumber, number>) {
    this.#before = before;
  }

  /** A limit that somebody has changed since is left alone. */
  [Symbol.dispose](): void {
    const now = readLink(LOOPBACK);
    const ours = new Map([...this.#before].filter(([name]) => now.get(name) === BIG_BYTES));
    if (ours.size > 0) writeLink(LOOPBACK, ours);
  }
}
