// What the kernel is told of listeners on other hosts: an endpoint is announced while at least one
// ready peer has it.

import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';

/** The steering. */
interface AnnouncementSink {
  announce(endpoint: IpEndpoint, peer: number): void;
  withdraw(endpoint: IpEndpoint): void;
}

export class Announcements {
  readonly #sink: AnnouncementSink;
  /** How many ready peers have it. */
  readonly #counts = new Map<string, number>();

  constructor(sink: AnnouncementSink) {
    this.#sink = sink;
  }

  add(endpoint: IpEndpoint, peer: number): void {
    const key = formatIpEndpoint(endpoint);
    const count = this.#counts.get(key) ?? 0;
    this.#counts.set(key, count + 1);
    if (count === 0) this.#sink.announce(endpoint, peer);
  }

  /** Once for each `add`. */
  remove(endpoint: IpEndpoint): void {
    const key = formatIpEndpoint(endpoint);
    const count = this.#counts.get(key) ?? 0;
    if (count > 1) {
      this.#counts.set(key, count - 1);
      return;
    }
    this.#counts.delete(key);
    this.#sink.withdraw(endpoint);
  }
}
