// Who announced what: an endpoint is announced while at least one peer says so.

import type { Address } from '../../native/index.ts';
import { formatIpEndpoint, type IpEndpoint } from '../../steering/index.ts';

/** A peer that has more listeners than this is mistaken, or malicious. */
export const MAX_ENDPOINTS_PER_PEER = 16_384;

/** Where announcements go: the steering. */
export interface AnnouncementSink {
  announce(endpoint: IpEndpoint, peer: number): void;
  withdraw(endpoint: IpEndpoint): void;
  setTrueClient(local: Address, client: Address): void;
  forgetTrueClient(local: Address): void;
}

interface Entry {
  readonly endpoint: IpEndpoint;
  readonly peers: Set<number>;
}

export class AnnouncedTable {
  readonly #sink: AnnouncementSink;
  readonly #entries = new Map<string, Entry>();
  readonly #counts = new Map<number, number>();

  constructor(sink: AnnouncementSink) {
    this.#sink = sink;
  }

  /** Endpoints and the numbers of the peers that announced them. */
  get entries(): readonly { readonly endpoint: string; readonly peers: readonly number[] }[] {
    return Array.from(this.#entries, ([endpoint, { peers }]) => ({ endpoint, peers: [...peers] }));
  }

  /** How many endpoints a peer has announced. */
  countOf(peer: number): number {
    return this.#counts.get(peer) ?? 0;
  }

  /** A peer that announced it. */
  peerAt(endpoint: IpEndpoint): number | undefined {
    const peers = this.#entries.get(formatIpEndpoint(endpoint))?.peers ?? [];
    for (const peer of peers) if (peer > 0) return peer;
    return undefined;
  }

  /** False when the peer has announced too many already. */
  announce(endpoint: IpEndpoint, peer: number): boolean {
    const key = formatIpEndpoint(endpoint);
    const known = this.#entries.get(key);
    if (known?.peers.has(peer)) return true;
    const count = this.countOf(peer);
    if (count >= MAX_ENDPOINTS_PER_PEER) return false;
    if (known === undefined) {
      this.#sink.announce(endpoint, peer);
      this.#entries.set(key, { endpoint, peers: new Set([peer]) });
    } else {
      known.peers.add(peer);
    }
    this.#counts.set(peer, count + 1);
    return true;
  }

  withdraw(endpoint: IpEndpoint, peer: number): void {
    const key = formatIpEndpoint(endpoint);
    const entry = this.#entries.get(key);
    if (entry === undefined || !entry.peers.delete(peer)) return;
    this.#counts.set(peer, this.countOf(peer) - 1);
    if (entry.peers.size > 0) return;
    this.#entries.delete(key);
    this.#sink.withdraw(endpoint);
  }

  /** The peer is gone, and with it all it said. */
  withdrawAll(peer: number): void {
    for (const { endpoint } of this.#entries.values()) this.withdraw(endpoint, peer);
  }
}
