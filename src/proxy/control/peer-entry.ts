// One peer of a control plane: its address, who dials it, its one connection, and the listeners
// announced on that.

import { formatIpEndpoint, type IpEndpoint } from '../../steering/index.ts';
import type { ControlConnection } from './control-connection.ts';
import type { GateMessage, KnockMessage, PeerMessage } from './control-protocol.ts';
import { type ControlHandlers, type ControlPeer, MAX_ENDPOINTS_PER_PEER, type PeerHello } from './control-spec.ts';
import { wordsOf } from './direct-teller.ts';
import type { PeerDialer } from './peer-dialer.ts';
import { type ListenerNews, nothingTold, type ToldListeners } from './told-listeners.ts';

interface HostSpec {
  readonly addresses: readonly string[];
  readonly listeners: ToldListeners;
}

type AdmissionMessage = Extract<PeerMessage, { readonly kind: KnockMessage['kind'] | GateMessage['kind'] }>;

export class PeerEntry {
  readonly #handlers: ControlHandlers;
  readonly #news: ListenerNews;
  /** What the peer announced on this connection. */
  readonly #announced = new Map<string, IpEndpoint>();
  /** Those of programs that have the library. */
  readonly #library = new Map<string, IpEndpoint>();
  /** What this host announced to the peer on this connection. */
  #told = nothingTold;
  /** Those who wait until the peer knows addresses, by the number of these. */
  readonly #waiting = new Map<number, () => void>();
  #connection: ControlConnection | undefined;
  peer: ControlPeer;
  /** Undefined when the peer dials this daemon. */
  dialer: PeerDialer | undefined;

  constructor(peer: ControlPeer, handlers: ControlHandlers, news: ListenerNews) {
    this.peer = peer;
    this.#handlers = handlers;
    this.#news = news;
  }

  /** Undefined when it is not up. */
  get connection(): ControlConnection | undefined {
    return this.#connection;
  }

  /**
   * The peer is proven to be at the other end of this connection. It is told the addresses and
   * listeners of this host.
   */
  attach(connection: ControlConnection, hello: PeerHello, { addresses, listeners }: HostSpec): void {
    const before = this.#connection;
    if (before !== undefined) {
      // The peer has started again, or lost the connection before this side did.
      this.detach(before, 'the peer connected again');
      before.leave('replaced by a newer connection');
    }
    this.#connection = connection;
    // First: what is opened by this side's clients is refused before their addresses are known.
    connection.tellAddresses(0, addresses);
    this.#told = nothingTold;
    this.tellListeners(listeners);
    // Sending may have failed, and then the connection has ended.
    if (this.#connection === connection) this.#handlers.onUp(this.peer.name, connection, hello);
  }

  hear(connection: ControlConnection, message: PeerMessage): void {
    if (connection !== this.#connection) return;
    const { name } = this.peer;
    if (message.kind === 'addresses') {
      this.#handlers.onAddresses(name, message.addresses, () => connection.tellKnown(message.number));
    } else if (message.kind === 'addressesKnown') this.#known(message.number);
    else if (message.kind === 'link') this.#handlers.onLink(name, message.link, message.body);
    else if (message.kind === 'announce') this.#announce(connection, message.endpoints);
    else if (message.kind === 'withdraw') this.#withdraw(message.endpoints);
    else if (message.kind === 'announceLibrary') this.#announceLibrary(message.endpoints);
    else if (message.kind === 'withdrawLibrary') this.#withdrawLibrary(message.endpoints);
    else if (message.kind === 'directWaits' || message.kind === 'directFound' || message.kind === 'directGone') {
      for (const word of wordsOf(message)) this.#handlers.onDirect(name, word);
    } else this.#hearAdmission(name, message);
  }

  #hearAdmission(name: string, message: AdmissionMessage): void {
    for (const one of message.list) {
      const told = { kind: message.kind, ...one } as KnockMessage | GateMessage;
      if (told.kind === 'knock' || told.kind === 'sequence') this.#handlers.onKnock(name, told);
      else this.#handlers.onGate(name, told);
    }
  }

  /** Resolves when the peer knows that these are the addresses of this host, or is not up. */
  tellAddresses(number: number, addresses: readonly string[]): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    if (this.#connection === undefined) return Promise.resolve();
    this.#waiting.set(number, resolve);
    this.#connection.tellAddresses(number, addresses);
    return promise;
  }

  /** What listens here for the peer from now on. */
  tellListeners(listeners: ToldListeners): void {
    const lines = this.#news.between(this.#told, listeners);
    this.#told = listeners;
    if (lines.length > 0) this.#connection?.tellLines(lines);
  }

  #known(number: number): void {
    this.#waiting.get(number)?.();
    this.#waiting.delete(number);
  }

  detach(connection: ControlConnection, reason: string): void {
    if (connection !== this.#connection) return;
    this.#connection = undefined;
    for (const number of this.#waiting.keys()) this.#known(number);
    this.#withdrawLibrary([...this.#library.values()]);
    this.#withdraw([...this.#announced.values()]);
    this.#handlers.onDown(this.peer.name, reason);
  }

  #announce(connection: ControlConnection, endpoints: readonly IpEndpoint[]): void {
    const added = new Map<string, IpEndpoint>();
    for (const endpoint of endpoints) {
      const key = formatIpEndpoint(endpoint);
      if (!this.#announced.has(key)) added.set(key, endpoint);
    }
    if (this.#announced.size + added.size > MAX_ENDPOINTS_PER_PEER) {
      connection.refuse(`more than ${MAX_ENDPOINTS_PER_PEER} endpoints`);
      return;
    }
    for (const [key, endpoint] of added) this.#announced.set(key, endpoint);
    if (added.size > 0) this.#handlers.onListeners(this.peer.name, [...added.values()], []);
  }

  #withdraw(endpoints: readonly IpEndpoint[]): void {
    this.#withdrawLibrary(endpoints);
    const removed = endpoints.filter((endpoint) => this.#announced.delete(formatIpEndpoint(endpoint)));
    if (removed.length > 0) this.#handlers.onListeners(this.peer.name, [], removed);
  }

  /** What was not announced does not count. */
  #announceLibrary(endpoints: readonly IpEndpoint[]): void {
    const isNew = (key: string): boolean => this.#announced.has(key) && !this.#library.has(key);
    const added = endpoints.filter((endpoint) => isNew(formatIpEndpoint(endpoint)));
    for (const endpoint of added) this.#library.set(formatIpEndpoint(endpoint), endpoint);
    if (added.length > 0) this.#handlers.onLibraryListeners(this.peer.name, added, []);
  }

  #withdrawLibrary(endpoints: readonly IpEndpoint[]): void {
    const removed = endpoints.filter((endpoint) => this.#library.delete(formatIpEndpoint(endpoint)));
    if (removed.length > 0) this.#handlers.onLibraryListeners(this.peer.name, [], removed);
  }
}
