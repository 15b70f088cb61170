// The control plane of a daemon: one connection with each peer, who is up, what listens on its host, and messages for links.

import { isDeepStrictEqual } from 'node:util';
import { MillraceError, ProtocolError } from '../../errors.ts';
import { formatIpEndpoint, type IpEndpoint } from '../../steering/index.ts';
import { checkSecurity, dial } from '../../tls/index.ts';
import { MAX_ENDPOINTS_PER_PEER } from './announced-table.ts';
import { type ConnectionEnd, type ConnectionEvents, ControlConnection } from './control-connection.ts';
import { beatOf, checkOptions, checkPeers } from './control-options.ts';
import { type Caller, ControlServer } from './control-server.ts';
import type {
  ControlAddress,
  ControlPeer,
  ControlPeerView,
  ControlPlaneOptions,
  ControlSecurity,
  HeartbeatSpec,
  PeerHello,
} from './control-spec.ts';
import { ErrorThrottle } from './error-throttle.ts';
import { Handshake } from './handshake.ts';
import { PeerDialer } from './peer-dialer.ts';
import { identifyDialer, localAddressFor } from './peer-identity.ts';
import { PeerSession } from './peer-session.ts';

interface Entry {
  readonly session: PeerSession;
  /** Undefined when the peer calls us. */
  caller: PeerDialer | undefined;
}

export class ControlPlane implements AsyncDisposable {
  readonly #options: ControlPlaneOptions;
  readonly #hello: PeerHello;
  readonly #beat: HeartbeatSpec;
  readonly #errors: ErrorThrottle;
  readonly #entries = new Map<string, Entry>();
  /** Callers of peers that are no longer wanted, until they have hung up. */
  readonly #farewells = new Set<Promise<void>>();
  readonly #server: ControlServer;
  #listeners = new Map<string, IpEndpoint>();
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
      onCaller: (caller) => this.#admit(caller),
      onError: (message) => this.#errors.report(message),
    });
  }

  /** Where peers call, with the real ports. */
  get addresses(): readonly ControlAddress[] {
    return this.#server.addresses;
  }

  peers(): readonly ControlPeerView[] {
    return Array.from(this.#entries.values(), ({ session }) => session.view(this.#security.kind === 'tls'));
  }

  /** The peers from now on: removed ones are told bye, those at another address are called there. */
  setPeers(peers: readonly ControlPeer[]): void {
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', 'set the peers: the control plane is closed');
    checkPeers(this.#options.name, peers);
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

  /** What listens on this host now, at the addresses where others reach it. The peers are told what is different. */
  setListeners(endpoints: readonly IpEndpoint[]): void {
    const before = this.#listeners;
    const now = new Map(endpoints.slice(0, MAX_ENDPOINTS_PER_PEER).map((one) => [formatIpEndpoint(one), one]));
    this.#listeners = now;
    const gone = Array.from(before).flatMap(([key, endpoint]) => (now.has(key) ? [] : [endpoint]));
    const come = Array.from(now).flatMap(([key, endpoint]) => (before.has(key) ? [] : [endpoint]));
    for (const { session } of this.#entries.values()) {
      session.connection?.tell('withdraw', gone);
      session.connection?.tell('announce', come);
    }
  }

  /** For new connections; those that are up stay as they are. False when it is what it was. */
  setSecurity(security: ControlSecurity): boolean {
    checkSecurity(security);
    const isNew = !isDeepStrictEqual(security, this.#security);
    this.#security = security;
    this.#server.setSecurity(security);
    return isNew;
  }

  /** False when the peer is not up. Throws a UsageError when the message is too large. */
  sendLink(peer: string, link: number, body: object): boolean {
    return this.#entries.get(peer)?.session.connection?.sendLink(link, body) ?? false;
  }

  /** The peer misbehaves: it is told so, and may come back later. */
  drop(peer: string, reason: string): void {
    this.#entries.get(peer)?.session.connection?.refuse(reason);
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

  #add(peer: ControlPeer): void {
    const isDialer = this.#options.name < peer.name;
    const reason = isDialer ? 'not connected yet' : `waiting for ${peer.name} to call`;
    const entry: Entry = { session: new PeerSession(peer, this.#options.handlers, reason), caller: undefined };
    this.#entries.set(peer.name, entry);
    if (isDialer) entry.caller = this.#call(entry.session);
  }

  #change(entry: Entry, peer: ControlPeer): void {
    const { host, port } = entry.session.peer;
    entry.session.peer = peer;
    if (peer.host === host && (peer.port === port || entry.caller === undefined)) return;
    this.#sayBye(entry, 'the address of the peer has changed');
    if (entry.caller !== undefined) entry.caller = this.#call(entry.session);
  }

  #sayBye({ session, caller }: Entry, reason: string): void {
    if (caller === undefined) {
      session.connection?.leave(reason);
      return;
    }
    const farewell = caller.close(reason).finally(() => this.#farewells.delete(farewell));
    this.#farewells.add(farewell);
  }

  #call(session: PeerSession): PeerDialer {
    return new PeerDialer({
      beat: this.#beat,
      dial: () =>
        dial(session.peer, this.#security, localAddressFor(session.peer, this.#security, this.#options.listen)),
      makeHandshake: () =>
        new Handshake({
          hello: this.#hello,
          isDialer: true,
          identify: ({ name }) => {
            if (name !== session.peer.name) throw new ProtocolError(`${session.peer.name} calls itself ${name}`);
          },
        }),
      events: this.#eventsOf(
        describePeer(session.peer),
        () => session,
        (reason) => session.failed(reason),
      ),
      onFailed: (reason, isFault) => {
        session.failed(reason);
        if (isFault) this.#errors.report(`${describePeer(session.peer)} cannot be called: ${reason}`);
      },
    });
  }

  #admit(caller: Caller): void {
    const { socket, guest, from } = caller;
    const handshake = new Handshake({
      hello: this.#hello,
      isDialer: false,
      identify: (hello) => {
        const peer = this.#entries.get(hello.name)?.session.peer;
        identifyDialer(this.#options.name, hello.name, peer, caller);
      },
    });
    const events = this.#eventsOf(`a caller from ${from}`, (name) => this.#entries.get(name)?.session);
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

  /** `who`: in errors, until it is proven who it is. `onVain`: it ended before that. */
  #eventsOf(
    who: string,
    sessionOf: (name: string) => PeerSession | undefined,
    onVain: (reason: string) => void = () => {},
  ): ConnectionEvents {
    let session: PeerSession | undefined;
    return {
      onGreeted: (connection, hello) => {
        session = sessionOf(hello.name);
        if (session === undefined) connection.refuse(`no peer is called ${hello.name} here`);
        else session.attach(connection, hello, [...this.#listeners.values()]);
      },
      onMessage: (connection, message) => session?.hear(connection, message),
      onEnd: (connection, end) => {
        const reason = wordsOf(end);
        const ended = session;
        // The same caller may dial again.
        session = undefined;
        if (ended === undefined) onVain(reason);
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

function describePeer({ name, host, port }: ControlPeer): string {
  return `peer ${name} at ${host} port ${port}`;
}
