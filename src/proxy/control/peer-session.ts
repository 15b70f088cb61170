// What this side knows of one peer: whether it is up, since when, why not, and what listens on its host.

import { formatIpEndpoint, type IpEndpoint } from '../../steering/index.ts';
import { MAX_ENDPOINTS_PER_PEER } from './announced-table.ts';
import type { ControlConnection } from './control-connection.ts';
import type { PeerMessage } from './control-protocol.ts';
import type { ControlHandlers, ControlPeer, ControlPeerView, ControlState, PeerHello } from './control-spec.ts';

export class PeerSession {
  readonly #handlers: ControlHandlers;
  readonly #listeners = new Map<string, IpEndpoint>();
  #peer: ControlPeer;
  #state: ControlState = 'connecting';
  #reason: string;
  #sinceMs = Date.now();
  #connection: ControlConnection | undefined;

  /** `reason`: why it is not up yet. */
  constructor(peer: ControlPeer, handlers: ControlHandlers, reason: string) {
    this.#peer = peer;
    this.#handlers = handlers;
    this.#reason = reason;
  }

  get peer(): ControlPeer {
    return this.#peer;
  }

  set peer(peer: ControlPeer) {
    this.#peer = peer;
  }

  /** Undefined when it is not up. */
  get connection(): ControlConnection | undefined {
    return this.#connection;
  }

  /** `isSecure`: whether a connection would be, if there were one. */
  view(isSecure: boolean): ControlPeerView {
    return {
      peer: this.#peer,
      state: this.#state,
      reason: this.#reason,
      sinceMs: this.#sinceMs,
      isSecure: this.#connection?.isSecure ?? isSecure,
      listeners: this.#listeners.size,
      roundTripMs: this.#connection?.roundTripMs ?? -1,
    };
  }

  /** The peer is proven to be at the other end of this connection. `listeners`: what it is told. */
  attach(connection: ControlConnection, hello: PeerHello, listeners: readonly IpEndpoint[]): void {
    const before = this.#connection;
    if (before !== undefined) {
      // It has started again, or lost the connection before we did.
      this.detach(before, 'the peer connected again');
      before.leave('replaced by a newer connection');
    }
    this.#connection = connection;
    this.#become('up', '');
    connection.tell('announce', listeners);
    // Telling can fail, and then it is down already.
    if (this.#connection === connection) this.#handlers.onUp(this.#peer.name, hello, connection.isDialer);
  }

  hear(connection: ControlConnection, message: PeerMessage): void {
    if (connection !== this.#connection) return;
    const { name } = this.#peer;
    if (message.kind === 'link') this.#handlers.onLink(name, message.link, message.body);
    else if (message.kind === 'announce') this.#announced(message.endpoints);
    else this.#withdrawn(message.endpoints);
  }

  detach(connection: ControlConnection, reason: string): void {
    if (connection !== this.#connection) return;
    this.#connection = undefined;
    this.#become('down', reason);
    const removed = [...this.#listeners.values()];
    this.#listeners.clear();
    if (removed.length > 0) this.#handlers.onListeners(this.#peer.name, [], removed);
    this.#handlers.onDown(this.#peer.name, reason);
  }

  /** It was called in vain. */
  failed(reason: string): void {
    if (this.#connection === undefined) this.#become('down', reason);
  }

  #become(state: ControlState, reason: string): void {
    if (state !== this.#state) this.#sinceMs = Date.now();
    this.#state = state;
    this.#reason = reason;
  }

  #announced(endpoints: readonly IpEndpoint[]): void {
    const added = new Map<string, IpEndpoint>();
    for (const endpoint of endpoints) {
      const key = formatIpEndpoint(endpoint);
      if (!this.#listeners.has(key)) added.set(key, endpoint);
    }
    if (this.#listeners.size + added.size > MAX_ENDPOINTS_PER_PEER) {
      this.#connection?.refuse(`more than ${MAX_ENDPOINTS_PER_PEER} endpoints`);
      return;
    }
    for (const [key, endpoint] of added) this.#listeners.set(key, endpoint);
    if (added.size > 0) this.#handlers.onListeners(this.#peer.name, [...added.values()], []);
  }

  #withdrawn(endpoints: readonly IpEndpoint[]): void {
    const removed = endpoints.filter((endpoint) => this.#listeners.delete(formatIpEndpoint(endpoint)));
    if (removed.length > 0) this.#handlers.onListeners(this.#peer.name, [], removed);
  }
}
