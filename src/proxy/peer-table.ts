// The peers of a daemon, by name: follows the directory, and checks that each announces listeners
// of its own host only.

import { formatIpEndpoint, type IpEndpoint, ownAddresses } from '../steering/index.ts';
import { type ControlPeer, isDialerOf } from './control/index.ts';
import { Peer, type PeerParts } from './peer.ts';

export class PeerTable implements Disposable {
  readonly #node: string;
  readonly #parts: PeerParts;
  readonly #onError: (message: string, peer: string) => void;
  readonly #addressesOfHost: () => Iterable<string>;
  readonly #peers = new Map<string, Peer>();
  #nextNumber = 1;

  /** `addressesOfHost`: which addresses are this host's, asked at each announcement. */
  constructor(
    node: string,
    parts: PeerParts,
    onError: (message: string, peer: string) => void,
    addressesOfHost: () => Iterable<string> = ownAddresses,
  ) {
    this.#addressesOfHost = addressesOfHost;
    this.#node = node;
    this.#parts = parts;
    this.#onError = onError;
  }

  get(name: string): Peer | undefined {
    return this.#peers.get(name);
  }

  get all(): readonly Peer[] {
    return [...this.#peers.values()];
  }

  /** The peers from now on. */
  replace(places: readonly ControlPeer[]): void {
    const names = new Set(places.map(({ name }) => name));
    for (const [name, peer] of this.#peers) {
      if (names.has(name)) continue;
      this.#peers.delete(name);
      peer.remove('it is no peer any more');
    }
    for (const place of places) {
      const known = this.#peers.get(place.name);
      if (known === undefined) this.#peers.set(place.name, this.#make(place));
      else known.moveTo(place);
    }
  }

  /**
   * Listeners that a peer announced or withdrew. An address that is another peer's or this host's
   * own is not believed.
   */
  listenersChanged(name: string, added: readonly IpEndpoint[], removed: readonly IpEndpoint[]): void {
    const foreign = new Set(this.#addressesOfHost());
    for (const peer of this.#peers.values()) if (peer.name !== name) foreign.add(peer.host);
    const isForeign = (endpoint: IpEndpoint): boolean => foreign.has(hostOf(formatIpEndpoint(endpoint)));
    const bad = added.find(isForeign);
    if (bad !== undefined) {
      const message = `peer ${name} announced ${formatIpEndpoint(bad)}, which is not an address of its host; ignored`;
      this.#onError(message, name);
    }
    this.#peers.get(name)?.listenersChanged(
      added.filter((endpoint) => !isForeign(endpoint)),
      removed,
    );
  }

  /** Why a destination that a rule is about was not announced; '' when it is no peer's. */
  whyNotAnnounced(remote: string): string {
    const host = hostOf(remote);
    return this.all.find((peer) => peer.host === host)?.whyNotAnnounced() ?? '';
  }

  [Symbol.dispose](): void {
    for (const peer of this.#peers.values()) peer[Symbol.dispose]();
  }

  #make(place: ControlPeer): Peer {
    const waitsFor = isDialerOf(this.#node, place.name) ? 'not connected yet' : `waiting for ${place.name} to connect`;
    return new Peer(this.#parts, this.#nextNumber++, place, waitsFor);
  }
}

/** Of `10.0.0.1:80` or `[fd00::1]:80`. */
function hostOf(endpoint: string): string {
  return endpoint.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
}
