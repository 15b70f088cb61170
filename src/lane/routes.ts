// Routes of a lane: which peers announced a server, by its IP endpoint.

import { type Address, formatAddress } from '../native/index.ts';
import { endpointOf, formatIpEndpoint } from '../steering/index.ts';

/** An IP endpoint as daemons announce it, which is the key of routes and listeners. */
export function announcedEndpoint(address: Address): string {
  return address.family === 'ipv4' ? formatAddress(address) : formatIpEndpoint(endpointOf(address));
}

export class Routes {
  readonly #peers = new Map<string, string[]>();

  /** Peers that announced the server, the first to announce it first. */
  peersOf(server: Address): readonly string[] {
    return this.#peers.get(announcedEndpoint(server)) ?? [];
  }

  change(peer: string, added: readonly string[], removed: readonly string[]): void {
    for (const endpoint of removed) {
      const left = this.#othersOf(endpoint, peer);
      if (left.length === 0) this.#peers.delete(endpoint);
      else this.#peers.set(endpoint, left);
    }
    for (const endpoint of added) this.#peers.set(endpoint, [...this.#othersOf(endpoint, peer), peer]);
  }

  #othersOf(endpoint: string, peer: string): string[] {
    return (this.#peers.get(endpoint) ?? []).filter((name) => name !== peer);
  }
}
