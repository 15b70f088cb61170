// The control plane of a daemon: keeps one connection with each peer, and hands on what comes over
// it.

import { isIP } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { MillraceError, ProtocolError } from '../../errors.ts';
import { canonicalHost, type IpEndpoint } from '../../steering/index.ts';
import { checkSecurity, dial, revocationOf } from '../../tls/index.ts';
import { type ConnectionEnd, type ConnectionEvents, ControlConnection } from './control-connection.ts';
import { beatOf, checkOptions, checkPeers } from './control-options.ts';
import { type DirectWord, type GateMessage, type KnockMessage, MAX_ADDRESSES } from './control-protocol.ts';
import { ControlServer, type Incoming } from './control-server.ts';
import type {
  ControlAddress,
  ControlPeer,
  ControlPlaneOptions,
  ControlSecurity,
  HeartbeatSpec,
  PeerHello,
} from './control-spec.ts';
import { ErrorThrottle } from './error-throttle.ts';
import { Handshake } from './handshake.ts';
import { PeerDialer } from './peer-dialer.ts';
import { PeerEntry } from './peer-entry.ts';
import { identifyDialer, localAddressFor } from './peer-identity.ts';
import { ListenerNews, type ToldListeners } from './told-listeners.ts';

type ListenersFor = (peer: string) => readonly IpEndpoint[];

const noListeners: readonly IpEndpoint[] = [];

/** Of two daemons, the one with the smaller name dials. Names are compared as plain strings. */
export function isDialerOf(own: string, peer: string): boolean {
  return own < peer;
}

export class ControlPlane implements AsyncDisposable {
  readonly #options: ControlPlaneOptions;
  readonly #hello: PeerHello;
  readonly #beat: HeartbeatSpec;
  readonly #errors: ErrorThrottle;
  readonly #entries = new Map<string, PeerEntry>();
  /** The addresses at which peers are known. */
  #hosts: ReadonlySet<string> = new Set();
  /** Dialers of peers that are no longer wanted, until they have hung up. */
  readonly #farewells = new Set<Promise<void>>();
  readonly #server: ControlServer;
  readonly #news = new ListenerNews();
  #listenersFor: ListenersFor = () => noListeners;
  #libraryFor: ListenersFor = () => noListeners;
  #addresses: readonly string[] = [];
  #addressesNumber = 0;
  #security: ControlSecurity;
  #isClosed = false;

  static async start(options: ControlPlaneOptions): Promise<ControlPlane> {
    checkOptions(options);
    const plane = new ControlPlane(options);
    await plane.#server.listen();
    plane.setPeers(options.peers);
    return plane;
  }

  private constructor(options: ControlPlaneOptions) {
    this.#options = options;
    this.#security = options.security;
    this.#hello = { ...options.hello, name: options.name };
    this.#beat = beatOf(options);
    this.#errors = new ErrorThrottle((message) =>
      options.handlers.onError(new MillraceError('MILLRACE_ERR_FAILED', message)),
    );
    this.#server = new ControlServer({
      listen: options.listen,
      security: options.security,
      isPeer: (from) => isIP(from) !== 0 && this.#hosts.has(canonicalHost(from)),
      onIncoming: (incoming) => this.#admit(incoming),
      onError: (message) => this.#errors.report(message),
    });
  }

  /** Where peers connect to, with the real ports. */
  get addresses(): readonly ControlAddress[] {
    return this.#server.addresses;
  }

  /** Whether a connection that is made from now on uses TLS. */
  get isSecure(): boolean {
    return this.#security.kind === 'tls';
  }

  /**
   * The peers from now on: removed ones are told bye, those at another address are dialed there.
   */
  setPeers(peers: readonly ControlPeer[]): void {
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', 'set the peers: the control plane is closed');
    checkPeers(this.#options.name, peers);
    this.#hosts = new Set(peers.flatMap(({ host }) => (isIP(host) === 0 ? [] : [canonicalHost(host)])));
    const names = new Set(peers.map(({ name }) => name));
    for (const [name, entry] of this.#entries) {
      if (names.has(name)) continue;
      this.#entries.delete(name);
      this.#sayBye(entry, 'removed from the peers');
    }
    for (const peer of peers) {
      const entry = this.#entries.get(peer.name);
      if (entry === undefined) this.#add(peer);
      else this.#change(entry, peer);
    }
  }

  /**
   * The addresses of this host: peers believe its clients no others. Resolves when all peers that
   * are up know them.
   */
  async setAddresses(hosts: readonly string[]): Promise<void> {
    const addresses = [...new Set(hosts)].slice(0, MAX_ADDRESSES).sort();
    if (isDeepStrictEqual(addresses, this.#addresses)) return;
    this.#addresses = addresses;
    const number = ++this.#addressesNumber;
    await Promise.all(Array.from(this.#entries.values(), (entry) => entry.tellAddresses(number, addresses)));
  }

  /**
   * What listens on this host now for each peer, by its name, at addresses that other hosts reach.
   * `libraryFor`: those of them whose programs have the library of direct connections. Peers are
   * told the difference, which is found once for all that are given the same lists.
   */
  setListeners(listenersFor: ListenersFor, libraryFor: ListenersFor = () => noListeners): void {
    this.#listenersFor = listenersFor;
    this.#libraryFor = libraryFor;
    for (const entry of this.#entries.values()) {
      if (entry.connection !== undefined) entry.tellListeners(this.#toldTo(entry.peer.name));
    }
  }

  #toldTo(peer: string): ToldListeners {
    return this.#news.told(this.#listenersFor(peer), this.#libraryFor(peer));
  }

  /** About packets between the two hosts. False when the peer is not up. */
  tellAdmission(peer: string, message: KnockMessage | GateMessage): boolean {
    const connection = this.#entries.get(peer)?.connection;
    connection?.tellAdmission(message);
    return connection !== undefined;
  }

  /** About direct connections between the two hosts. Nothing happens when the peer is not up. */
  tellDirect(peer: string, word: DirectWord): void {
    this.#entries.get(peer)?.connection?.tellDirect(word);
  }

  /** The peer broke the protocol. */
  refuse(peer: string, reason: string): void {
    this.#entries.get(peer)?.connection?.refuse(reason);
  }

  /**
   * For new connections. Those that are up stay as they are, unless the peer's certificate is
   * revoked. False when nothing changed.
   */
  setSecurity(security: ControlSecurity): boolean {
    checkSecurity(security);
    const isNew = !isDeepStrictEqual(security, this.#security);
    this.#security = security;
    this.#server.setSecurity(security);
    if (isNew) for (const entry of this.#entries.values()) this.#endRevoked(entry);
    return isNew;
  }

  async close(reason = 'shutdown'): Promise<void> {
    if (!this.#isClosed) {
      this.#isClosed = true;
      for (const entry of this.#entries.values()) this.#sayBye(entry, reason);
    }
    await Promise.all([this.#server.close(reason), ...this.#farewells]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  #endRevoked({ peer, connection }: PeerEntry): void {
    const problem = revocationOf(connection?.certificate, this.#security);
    if (connection === undefined || problem === undefined) return;
    connection.refuse(refusedCertificate(problem));
    this.#options.handlers.onRevoked(peer.name, problem);
  }

  #add(peer: ControlPeer): void {
    const entry = new PeerEntry(peer, this.#options.handlers, this.#news);
    this.#entries.set(peer.name, entry);
    if (isDialerOf(this.#options.name, peer.name)) entry.dialer = this.#dial(entry);
  }

  #change(entry: PeerEntry, peer: ControlPeer): void {
    const { host, port } = entry.peer;
    entry.peer = peer;
    if (peer.host === host && (peer.port === port || entry.dialer === undefined)) return;
    this.#sayBye(entry, 'the address of the peer has changed');
    if (entry.dialer !== undefined) entry.dialer = this.#dial(entry);
  }

  #sayBye({ connection, dialer }: PeerEntry, reason: string): void {
    if (dialer === undefined) {
      connection?.leave(reason);
      return;
    }
    const farewell = dialer.close(reason).finally(() => this.#farewells.delete(farewell));
    this.#farewells.add(farewell);
  }

  #dial(entry: PeerEntry): PeerDialer {
    const { listen, handlers } = this.#options;
    const failed = (reason: string): void => handlers.onDialFailed(entry.peer.name, reason);
    return new PeerDialer({
      beat: this.#beat,
      dial: () => dial(entry.peer, this.#security, localAddressFor(entry.peer, this.#security, listen)),
      makeHandshake: () =>
        new Handshake({
          hello: this.#hello,
          isDialer: true,
          identify: ({ name }) => {
            if (name !== entry.peer.name) throw new ProtocolError(`${entry.peer.name} calls itself ${name}`);
          },
        }),
      events: this.#eventsOf(describePeer(entry.peer), () => entry, failed),
      onFailed: (reason, isFault) => {
        failed(reason);
        if (isFault) this.#errors.report(`${describePeer(entry.peer)} cannot be dialed: ${reason}`);
      },
    });
  }

  #admit(incoming: Incoming): void {
    const { socket, guest, from } = incoming;
    const handshake = new Handshake({
      hello: this.#hello,
      isDialer: false,
      identify: (hello) => {
        const peer = this.#entries.get(hello.name)?.peer;
        identifyDialer(this.#options.name, hello.name, peer, incoming);
      },
    });
    const events = this.#eventsOf(`a connection from ${from}`, (name) => this.#entries.get(name));
    const connection = new ControlConnection(socket, handshake, this.#beat, {
      ...events,
      onGreeted: (greeted, hello) => {
        guest.leave();
        events.onGreeted(greeted, hello);
      },
      onEnd: (ended, end) => {
        guest.leave();
        events.onEnd(ended, end);
      },
    });
    guest.expel = (reason) => connection.refuse(reason);
  }

  /**
   * `who`: the other side in errors until it has proven its name. `onFailed`: the connection ended
   * before that.
   */
  #eventsOf(
    who: string,
    entryOf: (name: string) => PeerEntry | undefined,
    onFailed: (reason: string) => void = () => {},
  ): ConnectionEvents {
    let entry: PeerEntry | undefined;
    return {
      onGreeted: (connection, hello) => {
        entry = entryOf(hello.name);
        // A list may have come after TLS had checked the certificate.
        const problem = revocationOf(connection.certificate, this.#security);
        if (problem !== undefined) connection.refuse(refusedCertificate(problem));
        else if (entry === undefined) connection.refuse(`no peer is called ${hello.name} here`);
        else {
          entry.attach(connection, hello, { addresses: this.#addresses, listeners: this.#toldTo(hello.name) });
        }
      },
      onMessage: (connection, message) => entry?.hear(connection, message),
      onEnd: (connection, end) => {
        const reason = wordsOf(end);
        const ended = entry;
        // A dialer uses these events for its next connection, too.
        entry = undefined;
        if (ended === undefined) onFailed(reason);
        else ended.detach(connection, reason);
        if (end.kind === 'lost' || end.kind === 'left' || this.#isClosed) return;
        this.#errors.report(`${ended === undefined ? who : describePeer(ended.peer)} ${reason}`);
      },
    };
  }
}

function wordsOf({ kind, reason }: ConnectionEnd): string {
  if (kind === 'refused') return `refused this daemon: ${reason}`;
  if (kind === 'misbehaved') return `was refused: ${reason}`;
  return kind === 'left' ? `bye: ${reason}` : reason;
}

/** As the acceptor of TLS says it, so that a reason has one form. */
function refusedCertificate(problem: string): string {
  return `a certificate that is not accepted here: ${problem}`;
}

function describePeer({ name, host, port }: ControlPeer): string {
  return `peer ${name} at ${host} port ${port}`;
}
