// What the kernel is told of listeners on other hosts: an endpoint is announced while at least one
// ready peer has it.
//
// The kernel's table has a limit, for all peers together. When it is full, the peer that has most
// there gives way to those that have less; connects to what is left out are plain TCP.

import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';

/** The steering. */
export interface AnnouncementSink {
  /** False when there is no room for it. */
  announce(endpoint: IpEndpoint, peer: number, hasLibrary: boolean): boolean;
  withdraw(endpoint: IpEndpoint): void;
}

interface Announced {
  readonly endpoint: IpEndpoint;
  /** How many ready peers have it. */
  count: number;
  /** By the number of whom the kernel knows it. */
  readonly peer: number;
}

export class Announcements {
  readonly #sink: AnnouncementSink;
  readonly #onFull: (isFull: boolean) => void;
  readonly #announced = new Map<string, Announced>();
  /** What the kernel knows, and what it has no room for, by peer. */
  readonly #told = new Map<number, Set<string>>();
  readonly #leftOut = new Map<number, Set<string>>();
  /** Peers whose programs there have the library, by endpoint. */
  readonly #library = new Map<string, ReadonlySet<number>>();
  #leftOutCount = 0;

  /** `onFull`: the table is full, or all have room again. */
  constructor(sink: AnnouncementSink, onFull: (isFull: boolean) => void = () => {}) {
    this.#sink = sink;
    this.#onFull = onFull;
  }

  /** Endpoints that the kernel has no room for. */
  get leftOut(): number {
    return this.#leftOutCount;
  }

  /** Whether a peer has announced it, and the kernel has no room for it. */
  isLeftOut(endpoint: IpEndpoint): boolean {
    const key = formatIpEndpoint(endpoint);
    return this.#leftOut.values().some((keys) => keys.has(key));
  }

  add(endpoint: IpEndpoint, peer: number): void {
    const key = formatIpEndpoint(endpoint);
    const known = this.#announced.get(key);
    if (known !== undefined) {
      known.count++;
      return;
    }
    this.#announced.set(key, { endpoint, count: 1, peer });
    if (this.#tell(key) || (this.#makeRoom(peer) && this.#tell(key))) return;
    entriesOf(this.#leftOut, peer).add(key);
    this.#countLeftOut(1);
  }

  /** Once for each `add`. */
  remove(endpoint: IpEndpoint): void {
    const key = formatIpEndpoint(endpoint);
    const known = this.#announced.get(key);
    if (known === undefined) return;
    if (known.count > 1) {
      known.count--;
      return;
    }
    this.#announced.delete(key);
    if (removeEntry(this.#leftOut, known.peer, key)) {
      this.#countLeftOut(-1);
      return;
    }
    removeEntry(this.#told, known.peer, key);
    this.#sink.withdraw(endpoint);
    this.#fillUp();
  }

  /** Whether the peer's programs there have the library of direct connections. */
  setLibrary(endpoint: IpEndpoint, peer: number, hasLibrary: boolean): void {
    const key = formatIpEndpoint(endpoint);
    const before = this.#library.get(key) ?? new Set();
    const peers = hasLibrary ? before.union(new Set([peer])) : before.difference(new Set([peer]));
    if (peers.size > 0) this.#library.set(key, peers);
    else this.#library.delete(key);
    if (this.#told.get(peer)?.has(key) === true) this.#sink.announce(endpoint, peer, hasLibrary);
  }

  /** False when there is no room. */
  #tell(key: string): boolean {
    const known = this.#announced.get(key);
    if (known === undefined) return true;
    const { endpoint, peer } = known;
    if (!this.#sink.announce(endpoint, peer, this.#library.get(key)?.has(peer) === true)) return false;
    entriesOf(this.#told, peer).add(key);
    return true;
  }

  /** The peer that has most gives way, if it has more than this one would have. */
  #makeRoom(peer: number): boolean {
    let [most, mostKeys] = [0, new Set<string>()];
    for (const [other, keys] of this.#told) if (keys.size > mostKeys.size) [most, mostKeys] = [other, keys];
    if (mostKeys.size <= (this.#told.get(peer)?.size ?? 0) + 1) return false;
    const [one = ''] = mostKeys;
    const known = this.#announced.get(one);
    if (known === undefined) return false;
    removeEntry(this.#told, most, one);
    this.#sink.withdraw(known.endpoint);
    entriesOf(this.#leftOut, most).add(one);
    this.#countLeftOut(1);
    return true;
  }

  /** There is room for one more: of the peer that has least. */
  #fillUp(): void {
    let [least, leastCount] = [-1, Number.POSITIVE_INFINITY];
    for (const peer of this.#leftOut.keys()) {
      const count = this.#told.get(peer)?.size ?? 0;
      if (count < leastCount) [least, leastCount] = [peer, count];
    }
    const key = this.#leftOut.get(least)?.values().next().value;
    if (key === undefined || !this.#tell(key)) return;
    removeEntry(this.#leftOut, least, key);
    this.#countLeftOut(-1);
  }

  #countLeftOut(change: 1 | -1): void {
    this.#leftOutCount += change;
    if (this.#leftOutCount === 0) this.#onFull(false);
    else if (this.#leftOutCount === 1 && change === 1) this.#onFull(true);
  }
}

function entriesOf(byPeer: Map<number, Set<string>>, peer: number): Set<string> {
  const entries = byPeer.get(peer) ?? new Set();
  byPeer.set(peer, entries);
  return entries;
}

function removeEntry(byPeer: Map<number, Set<string>>, peer: number, key: string): boolean {
  const entries = byPeer.get(peer);
  if (entries === undefined || !entries.delete(key)) return false;
  if (entries.size === 0) byPeer.delete(peer);
  return true;
}
