// Whose address is whose: an address belongs to the first peer that claims it, until that peer lets
// it go. Addresses are compared as numbers, however they are written.

import { isIP } from 'node:net';
import { canonicalHost, isHostLocal } from '../steering/index.ts';

export class AddressOwners {
  readonly #isOwn: (host: string) => boolean;
  /** Peers that claim an address, in the order in which they did. */
  readonly #claims = new Map<string, readonly string[]>();
  readonly #claimedBy = new Map<string, ReadonlySet<string>>();
  /**
   * The addresses at which peers are known, which nobody else can claim; and the other way round.
   */
  readonly #places = new Map<string, string>();
  readonly #placeOf = new Map<string, string>();

  /** `isOwn`: whether an address is this host's. */
  constructor(isOwn: (host: string) => boolean) {
    this.#isOwn = isOwn;
  }

  /**
   * Where the peer's daemon is. It need not be an address; then nothing is known. Returns the peers
   * whose addresses may be others now, as do the next two.
   */
  setPlace(peer: string, host: string): ReadonlySet<string> {
    const place = isIP(host) === 0 ? undefined : canonicalHost(host);
    if (place === this.#placeOf.get(peer)) return new Set();
    const affected = new Set([...this.#leavePlace(peer), peer]);
    if (place === undefined) return affected;
    this.#placeOf.set(peer, place);
    this.#places.set(place, peer);
    return new Set([...affected, ...(this.#claims.get(place) ?? [])]);
  }

  /** These are the addresses of a peer's host, by its own account, and no others. */
  claim(peer: string, hosts: readonly string[]): ReadonlySet<string> {
    const before = this.#claimedBy.get(peer) ?? new Set();
    const now = new Set(hosts.map(canonicalHost));
    const affected = new Set([peer]);
    for (const host of before.difference(now)) {
      const left = (this.#claims.get(host) ?? []).filter((name) => name !== peer);
      for (const name of left) affected.add(name);
      if (left.length === 0) this.#claims.delete(host);
      else this.#claims.set(host, left);
    }
    for (const host of now.difference(before)) this.#claims.set(host, [...(this.#claims.get(host) ?? []), peer]);
    this.#claimedBy.set(peer, now);
    return affected;
  }

  /** It is no peer any more. */
  release(peer: string): ReadonlySet<string> {
    const affected = new Set([...this.claim(peer, []), ...this.#leavePlace(peer)]);
    this.#claimedBy.delete(peer);
    affected.delete(peer);
    return affected;
  }

  /** Whose it is; undefined when it is nobody's, this host's, or no address of one host alone. */
  ownerOf(host: string): string | undefined {
    const found = canonicalHost(host);
    if (isHostLocal(found) || isOfNoHost(found) || this.#isOwn(found)) return undefined;
    return this.#places.get(found) ?? this.#claims.get(found)?.[0];
  }

  /** All that are the peer's. */
  ownedBy(peer: string): readonly string[] {
    const known = new Set(this.#claimedBy.get(peer));
    const place = this.#placeOf.get(peer);
    if (place !== undefined) known.add(place);
    return [...known].filter((host) => this.ownerOf(host) === peer);
  }

  #leavePlace(peer: string): readonly string[] {
    const place = this.#placeOf.get(peer);
    if (place === undefined) return [];
    this.#placeOf.delete(peer);
    if (this.#places.get(place) === peer) this.#places.delete(place);
    return this.#claims.get(place) ?? [];
  }
}

/** Unspecified, multicast or broadcast. */
function isOfNoHost(host: string): boolean {
  if (host.includes(':')) return host === '::' || host.startsWith('ff');
  const first = Number(host.split('.')[0]);
  return first === 0 || first >= 224;
}
