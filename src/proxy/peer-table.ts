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
    for (const [name, { peer, asked }] of this.#known) {
      if (names.has(name)) continue;
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
    for (const endpoint of removed) known.announced.delete(formatIpEndpoint(endpoint));
    for (const endpoint of added) known.announced.set(formatIpEndpoint(endpoint), endpoint);
    this.#refuse(
      known,
      added.map((endpoint) => hostOf(formatIpEndpoint(endpoint))),
    );
    this.#believeListeners(known);
  }

  /**
   * Packets get to that peer there, whether or not it announced so; or, without a peer, to none.
   */
  reached(endpoint: IpEndpoint, name: string | undefined): void {
    const key = formatIpEndpoint(endpoint);
    for (const known of this.#known.values()) {
      const isChanged = known.peer.name === name ? known.reached.set(key, endpoint) : known.reached.delete(key);
      if (isChanged !== false) this.#believeListeners(known);
    }
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
      this.#believeListeners(known);
      const clients = this.#owners.ownedBy(known.peer.name);
      if (String(clients) === String(known.clients)) continue;
      known.clients = clients;
      this.#parts.lanes.tellAll({ kind: 'clients', peer: known.peer.name, hosts: clients });
    }
  }

  #believeListeners({ peer, announced, reached, believed, asked }: Known): void {
    const { knocks } = this.#parts;
    const isItsOwn = (key: string): boolean => this.#owners.ownerOf(hostOf(key)) === peer.name;
    for (const [key, endpoint] of asked) {
      if (announced.has(key) && isItsOwn(key)) continue;
      asked.delete(key);
      knocks.withdrawn(endpoint);
    }
    const all = new Map([...reached, ...announced]);
    const removed = Array.from(believed).filter(([key]) => !all.has(key) || !isItsOwn(key));
    const added = Array.from(all).filter(([key]) => !believed.has(key) && isItsOwn(key));
    for (const [key] of removed) believed.delete(key);
    for (const [key, endpoint] of added) believed.set(key, endpoint);
    for (const [key, endpoint] of announced) {
      if (asked.has(key) || !isItsOwn(key)) continue;
      asked.set(key, endpoint);
      knocks.announced(endpoint);
    }
    if (removed.length + added.length === 0) return;
    peer.listenersChanged(
      added.map(([, endpoint]) => endpoint),
      removed.map(([, endpoint]) => endpoint),
    );
  }

  #refuse({ peer: { name }, refused }: Known, hosts: readonly string[]): void {
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
