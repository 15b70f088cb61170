// What the kernel is told of listeners on other hosts: an endpoint is announced while at least one
// ready peer has it.

import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';

/** The steering. */
interface AnnouncementSink {
  announce(endpoint: IpEndpoint, peer: number, hasLibrary: boolean): void;
  withdraw(endpoint: IpEndpoint): void;
}

interface Announced {
  /** How many ready peers have it. */
  count: number;
  /** By the number of whom the kernel knows it. */
  readonly peer: number;
}

export class Announcements {
  readonly #sink: AnnouncementSink;
  readonly #announced = new Map<string, Announced>();
  /** Peers whose programs there have the library, by endpoint. */
  readonly #library = new Map<string, ReadonlySet<number>>();

  constructor(sink: AnnouncementSink) {
    this.#sink = sink;
  }

  add(endpoint: IpEndpoint, peer: number): void {
    const key = formatIpEndpoint(endpoint);
    const known = this.#announced.get(key);
    if (known !== undefined) {
      known.count++;
      return;
    }
    this.#announced.set(key, { count: 1, peer });
    this.#sink.announce(endpoint, peer, this.#hasLibrary(key, peer));
  }

  /** Once for each `add`. */
  remove(endpoint: IpEndpoint): void {
    const key = formatIpEndpoint(endpoint);
    const known = this.#announced.get(key);
    if (known !== undefined && known.count > 1) {
      known.count--;
      return;
    }
    this.#announced.delete(key);
    this.#sink.withdraw(endpoint);
  }

  /** Whether the peer's programs there have the library of direct connections. */
  setLibrary(endpoint: IpEndpoint, peer: number, hasLibrary: boolean): void {
    const key = formatIpEndpoint(endpoint);
    const before = this.#library.get(key) ?? new Set();
    const peers = hasLibrary ? before.union(new Set([peer])) : before.difference(new Set([peer]));
    if (peers.size > 0) this.#library.set(key, peers);
    else this.#library.delete(key);
    if (this.#announced.get(key)?.peer === peer) this.#sink.announce(endpoint, peer, hasLibrary);
  }

  #hasLibrary(key: string, peer: number): boolean {
    return this.#library.get(key)?.has(peer) === true;
  }
}
