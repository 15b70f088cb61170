// The peers of a daemon, by name: follows the directory, and believes each only what is about
// addresses of its own host.

import { isIP } from 'node:net';
import { canonicalHost, formatIpEndpoint, type IpEndpoint, ownAddresses } from '../steering/index.ts';
import { AddressOwners } from './address-owners.ts';
import { type ControlPeer, isDialerOf } from './control/index.ts';
import { Peer, type PeerParts } from './peer.ts';

/** A peer, and what it said, whether or not it is believed. */
interface Known {
  readonly peer: Peer;
  readonly announced: Map<string, IpEndpoint>;
  /** Where packets were seen to get to it, besides. */
  readonly reached: Map<string, IpEndpoint>;
  /** Those of both that are believed. */
  readonly believed: Map<string, IpEndpoint>;
  /** Announced ones of which it is asked whether packets get there. */
  readonly asked: Map<string, IpEndpoint>;
  /** Addresses that its clients may have, as its lanes know them. */
  clients: readonly string[];
  /** Told once of each address that is not its own. */
  readonly refused: Set<string>;
}

export class PeerTable implements Disposable {
  readonly #node: string;
  readonly #parts: PeerParts;
  readonly #onError: (message: string, peer: string) => void;
  readonly #owners: AddressOwners;
  readonly #known = new Map<string, Known>();
  /** Whom packets were seen to get to, by endpoint. */
  readonly #reachedAt = new Map<string, Known>();
  #own: ReadonlySet<string>;
  #nextNumber = 1;

  constructor(
    node: string,
    parts: PeerParts,
    onError: (message: string, peer: string) => void,
    own: readonly string[] = ownAddresses(),
  ) {
    this.#node = node;
    this.#parts = parts;
    this.#onError = onError;
    this.#own = new Set(own.map(canonicalHost));
    this.#owners = new AddressOwners((host) => this.#own.has(host));
  }

  get(name: string): Peer | undefined {
    return this.#known.get(name)?.peer;
  }

  get all(): readonly Peer[] {
    return Array.from(this.#known.values(), ({ peer }) => peer);
  }

  /** The addresses of this host from now on, which no peer can have. */
  setOwnAddresses(hosts: readonly string[]): void {
    const own = new Set(hosts.map(canonicalHost));
    if (own.symmetricDifference(this.#own).size === 0) return;
    this.#own = own;
    this.#believe(this.#known.keys());
  }

  /** The peers from now on. */
  replace(places: readonly ControlPeer[]): void {
    const names = new Set(places.map(({ name }) => name));
    const affected = new Set<string>();
    const add = (more: Iterable<string>): void => {
      for (const name of more) affected.add(name);
    };
    for (const [name, { peer, asked, reached }] of this.#known) {
      if (names.has(name)) continue;
      for (const key of reached.keys()) this.#reachedAt.delete(key);
      for (const endpoint of asked.values()) this.#parts.knocks.withdrawn(endpoint);
      this.#known.delete(name);
      add(this.#owners.release(name));
      peer.remove('it is no peer any more');
    }
    for (const place of places) {
      add(this.#owners.setPlace(place.name, place.host));
      const known = this.#known.get(place.name);
      if (known === undefined) this.#known.set(place.name, this.#make(place));
      else known.peer.moveTo(place);
    }
    this.#believe(affected);
  }

  /** The addresses of a peer's host, by its own account. */
  addressesChanged(name: string, hosts: readonly string[]): void {
    const known = this.#known.get(name);
    if (known === undefined) return;
    const affected = this.#owners.claim(name, hosts);
    this.#refuse(known, hosts);
    this.#believe(affected);
  }

  /** Listeners that a peer announced or withdrew. */
  listenersChanged(name: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void {
    const known = this.#known.get(name);
    if (known === undefined) return;
    const keys = new Set<string>();
    for (const endpoint of removed) {
      const key = formatIpEndpoint(endpoint);
      known.announced.delete(key);
      keys.add(key);
    }
    const hosts = new Set<string>();
    for (const endpoint of added) {
      const key = formatIpEndpoint(endpoint);
      known.announced.set(key, endpoint);
      keys.add(key);
      hosts.add(hostOf(key));
    }
    this.#refuse(known, hosts);
    this.#believeListeners(known, keys);
  }

  /**
   * Packets get to that peer there, whether or not it announced so; or, without a peer, to none.
   */
  reached(endpoint: IpEndpoint, name: string | undefined): void {
    const key = formatIpEndpoint(endpoint);
    const [before, now] = [this.#reachedAt.get(key), name === undefined ? undefined : this.#known.get(name)];
    this.#reachedAt.delete(key);
    if (before !== undefined && before !== now) {
      before.reached.delete(key);
      this.#believeListeners(before, [key]);
    }
    if (now === undefined) return;
    this.#reachedAt.set(key, now);
    now.reached.set(key, endpoint);
    this.#believeListeners(now, [key]);
  }

  /** The peer whose host an endpoint is at. */
  ownerOf(endpoint: string): string | undefined {
    return this.#owners.ownerOf(hostOf(endpoint));
  }

  /**
   * The peers that may have the end of a connection that an end on this host knows by that address:
   * its owner, or through NAT whoever. None for addresses of this host.
   */
  peersFor(host: string): readonly string[] {
    if (isIP(host) === 0 || this.isOwn(host)) return [];
    const owner = this.#owners.ownerOf(canonicalHost(host));
    return owner === undefined ? [...this.#known.keys()] : [owner];
  }

  /** An address of this host, as a loopback address always is. */
  isOwn(host: string): boolean {
    const found = canonicalHost(host);
    return found.startsWith('127.') || found === '::1' || this.#own.has(found);
  }

  /** Why a destination that a rule is about was not announced; '' when it is no peer's. */
  whyNotAnnounced(remote: string, unheard = ''): string {
    const owner = this.ownerOf(remote);
    return owner === undefined ? '' : (this.get(owner)?.whyNotAnnounced(unheard) ?? '');
  }

  [Symbol.dispose](): void {
    for (const { peer } of this.#known.values()) peer[Symbol.dispose]();
  }

  /** The addresses of these peers may be others now. */
  #believe(affected: Iterable<string>): void {
    for (const name of affected) {
      const known = this.#known.get(name);
      if (known === undefined) continue;
      const { announced, reached, believed, asked } = known;
      const keys = [announced, reached, believed, asked].flatMap((each) => [...each.keys()]);
      this.#believeListeners(known, new Set(keys));
      const clients = this.#owners.ownedBy(known.peer.name);
      if (String(clients) === String(known.clients)) continue;
      known.clients = clients;
      this.#parts.lanes.tellAll({ kind: 'clients', peer: known.peer.name, hosts: clients });
    }
  }

  /** Of these endpoints it may have changed whether they are the peer's. */
  #believeListeners({ peer, announced, reached, believed, asked }: Known, keys: Iterable<string>): void {
    const { knocks } = this.#parts;
    const owners = new Map<string, string | undefined>();
    const isItsOwn = (key: string): boolean => {
      const host = hostOf(key);
      if (!owners.has(host)) owners.set(host, this.#owners.ownerOf(host));
      return owners.get(host) === peer.name;
    };
    const added: IpEndpoint[] = [];
    const removed: IpEndpoint[] = [];
    for (const key of keys) {
      const isOwn = isItsOwn(key);
      const said = isOwn ? announced.get(key) : undefined;
      const knocked = asked.get(key);
      if (knocked !== undefined && said === undefined) {
        asked.delete(key);
        knocks.withdrawn(knocked);
      }
      const [before, now] = [believed.get(key), said ?? (isOwn ? reached.get(key) : undefined)];
      if (now === undefined && before !== undefined) {
        believed.delete(key);
        removed.push(before);
      } else if (now !== undefined && before === undefined) {
        believed.set(key, now);
        added.push(now);
      }
      if (said !== undefined && knocked === undefined) {
        asked.set(key, said);
        knocks.announced(said);
      }
    }
    if (removed.length + added.length > 0) peer.listenersChanged(added, removed);
  }

  #refuse({ peer: { name }, refused }: Known, hosts: Iterable<string>): void {
    for (const host of hosts) {
      const owner = this.#owners.ownerOf(host);
      if (owner === name || refused.has(host)) continue;
      refused.add(host);
      const whose = owner === undefined ? 'not an address of another host' : `the address of peer ${owner}`;
      this.#onError(`peer ${name} announced ${host}, which is ${whose}; ignored`, name);
    }
  }

  #make(place: ControlPeer): Known {
    const waitsFor = isDialerOf(this.#node, place.name) ? 'not connected yet' : `waiting for ${place.name} to connect`;
    const peer = new Peer(this.#parts, this.#nextNumber++, place, waitsFor);
    const [announced, reached, believed, asked] = Array.from({ length: 4 }, () => new Map<string, IpEndpoint>());
    return { peer, announced, reached, believed, asked, clients: [], refused: new Set() };
  }
}

/** Of `10.0.0.1:80` or `[fd00::1]:80`. */
function hostOf(endpoint: string): string {
  return endpoint.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
}
