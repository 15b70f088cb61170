// Announcements between relays: tells each peer what listens on this host, and hears what listens on theirs.
//
// Each relay calls each of its peers, and tells on the connection that it made. What was heard from a peer is true for as
// long as its connection lasts.

import { createServer, type Server, type Socket } from 'node:net';
import { MillraceError, UsageError } from '../errors.ts';
import { LineSplitter } from '../json-lines/index.ts';
import { type Address, ip } from '../native/index.ts';
import { AnnouncedTable, type AnnouncementSink, MAX_ENDPOINTS_PER_PEER } from '../proxy/control/index.ts';
import { addressOf, endpointOf, formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';
import { isNodeName } from '../text/index.ts';
import { decodeMessage, encodeMessage, type Message } from './announcement-protocol.ts';
import { ALIVE_MS, PeerCall, type PeerSpec, SILENCE_MS } from './peer-call.ts';

export const DEFAULT_CONTROL_PORT = 4790;
const MAX_CONTROL_CALLERS = 1024;
/** Half of what the map in the kernel holds. */
const MAX_NAMED_PER_PEER = 32_768;

export interface AnnouncementsOptions {
  /** What the peers call this relay. */
  readonly name: string;
  /** Where peers call. Port 0: any. */
  readonly listen: { readonly host: string; readonly port: number };
  readonly peers: readonly PeerSpec[];
  readonly sink: AnnouncementSink;
  readonly onError?: (error: MillraceError) => void;
  /** The peer answers our calls, or does so no more. */
  readonly onPeer?: (peer: PeerSpec, isUp: boolean, reason: string) => void;
}

/** Number of announcements that no peer made. */
const NO_PEER = 0;

export class Announcements implements AsyncDisposable {
  readonly #options: AnnouncementsOptions;
  readonly #table: AnnouncedTable;
  readonly #server: Server;
  readonly #listeners = new Map<string, IpEndpoint>();
  readonly #callers = new Set<Socket>();
  /** The connection on which a peer tells, by its number. */
  readonly #hearing = new Map<number, Socket>();
  /** Callers that a peer named, by its number. */
  readonly #named = new Map<number, Map<string, Address>>();
  #calls: readonly PeerCall[] = [];
  #port = 0;

  static async start(options: AnnouncementsOptions): Promise<Announcements> {
    const announcements = new Announcements(options);
    await announcements.#start();
    return announcements;
  }

  private constructor(options: AnnouncementsOptions) {
    checkNames(options);
    this.#options = options;
    this.#table = new AnnouncedTable(options.sink);
    this.#server = createServer({ noDelay: true }, (socket) => this.#admit(socket));
    this.#server.maxConnections = MAX_CONTROL_CALLERS;
  }

  /** Where peers call. */
  get port(): number {
    return this.#port;
  }

  /** What is announced now, and by whom. */
  get announced(): readonly { readonly endpoint: string; readonly peers: readonly string[] }[] {
    return this.#table.entries.map(({ endpoint, peers }) => ({
      endpoint,
      peers: peers.map((peer) => this.#options.peers[peer - 1]?.name ?? '(here)'),
    }));
  }

  get peers(): readonly { readonly peer: PeerSpec; readonly isTold: boolean; readonly isHeard: boolean }[] {
    return this.#options.peers.map((peer, index) => ({
      peer,
      isTold: this.#calls[index]?.isUp ?? false,
      isHeard: this.#hearing.has(index + 1),
    }));
  }

  /** Announces here what no peer needs to say. */
  announceHere(endpoint: IpEndpoint): void {
    this.#table.announce(endpoint, NO_PEER);
  }

  /** Tells the peer where `original` listens who really calls from `local`. Undefined when no peer has to know. */
  setTrueClient(local: Address, client: Address, original: Address): Promise<void> | undefined {
    const call = this.#callTo(original);
    return call?.isUp === true ? call.setTrueClient(endpointOf(local), endpointOf(client)) : undefined;
  }

  forgetTrueClient(local: Address, original: Address): void {
    this.#callTo(original)?.forgetTrueClient(endpointOf(local));
  }

  #callTo(original: Address): PeerCall | undefined {
    const peer = this.#table.peerAt(endpointOf(original));
    return peer === undefined ? undefined : this.#calls[peer - 1];
  }

  /** What listens on this host now, at the addresses where others reach it. The peers are told what is different. */
  setListeners(endpoints: readonly IpEndpoint[]): void {
    const now = new Map(endpoints.slice(0, MAX_ENDPOINTS_PER_PEER).map((one) => [formatIpEndpoint(one), one]));
    const gone = [...this.#listeners].filter(([key]) => !now.has(key));
    const come = [...now].filter(([key]) => !this.#listeners.has(key));
    for (const [key] of gone) this.#listeners.delete(key);
    for (const [key, endpoint] of come) this.#listeners.set(key, endpoint);
    for (const call of this.#calls) {
      call.tell(
        'withdraw',
        gone.map(([, endpoint]) => endpoint),
      );
      call.tell(
        'announce',
        come.map(([, endpoint]) => endpoint),
      );
    }
  }

  async close(): Promise<void> {
    for (const call of this.#calls) call.close();
    // Now, and not when the connections have ended: by then those who are told may be closed.
    for (const peer of this.#hearing.keys()) this.#forgetAll(peer);
    this.#hearing.clear();
    for (const socket of this.#callers) socket.destroy();
    if (!this.#server.listening) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#server.close(() => resolve());
    await promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #start(): Promise<void> {
    const { listen, name, peers, onPeer = () => {} } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once('error', reject);
    this.#server.listen({ host: listen.host, port: listen.port }, resolve);
    try {
      await promise;
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      const where = `${listen.host} port ${listen.port}`;
      const hint = code === 'EADDRINUSE' ? ' (in use; choose another with --control-port)' : '';
      throw new MillraceError('MILLRACE_ERR_FAILED', `listen for peers on ${where}: ${code}${hint}`, { cause: error });
    }
    const address = this.#server.address();
    this.#port = typeof address === 'object' && address !== null ? address.port : 0;
    this.#server.on('error', (error) => this.#reportError(`accept a peer: ${error.message}`));
    const localAddress = isAnyAddress(listen.host) ? {} : { localAddress: listen.host };
    this.#calls = peers.map(
      (peer) =>
        new PeerCall({
          peer,
          name,
          ...(familyOf(peer.host) === familyOf(listen.host) ? localAddress : {}),
          listeners: () => this.#listeners.values(),
          onChange: (isUp, reason) => onPeer(peer, isUp, reason),
        }),
    );
  }

  #reportError(message: string): void {
    this.#options.onError?.(new MillraceError('MILLRACE_ERR_FAILED', message));
  }

  #admit(socket: Socket): void {
    this.#callers.add(socket);
    const lines = new LineSplitter();
    const from = plainHost(socket.remoteAddress ?? '');
    let peer: number | undefined;
    const alive = setInterval(() => void socket.write(encodeMessage({ kind: 'alive' })), ALIVE_MS);
    socket.setTimeout(SILENCE_MS, () => socket.destroy());
    // Whatever ended it, `close` follows.
    socket.on('error', () => {});
    socket.on('close', () => {
      clearInterval(alive);
      this.#callers.delete(socket);
      if (peer !== undefined) this.#forget(peer, socket);
    });
    socket.on('data', (bytes) => {
      try {
        for (const line of lines.split(bytes)) {
          if (socket.destroyed) return;
          const message = decodeMessage(line);
          if (peer === undefined) peer = this.#greet(socket, from, message);
          else this.#hear(peer, socket, message);
        }
      } catch (error) {
        const reason = error instanceof Error ? error.message : String(error);
        this.#reportError(`a caller from ${from} was refused: ${reason}`);
        socket.end(encodeMessage({ kind: 'refused', reason }), () => socket.destroy());
      }
    });
  }

  /** The number of the peer that says hello. */
  #greet(socket: Socket, from: string, message: Message): number {
    if (message.kind !== 'hello') throw new UsageError('no hello before anything else');
    const index = this.#options.peers.findIndex(({ name }) => name === message.name);
    if (index < 0) throw new UsageError(`no peer is called ${message.name} here`);
    const expected = this.#options.peers[index]?.host ?? '';
    if (!isSameHost(from, expected)) throw new UsageError(`${message.name} is expected from ${expected}`);
    const peer = index + 1;
    // It has started again, or lost the connection before we did.
    const before = this.#hearing.get(peer);
    this.#hearing.set(peer, socket);
    this.#forgetAll(peer);
    before?.destroy();
    socket.write(encodeMessage({ kind: 'hello', name: this.#options.name }));
    return peer;
  }

  #hear(peer: number, socket: Socket, message: Message): void {
    if (message.kind === 'announce') {
      for (const endpoint of message.endpoints) {
        if (!this.#table.announce(endpoint, peer)) throw new UsageError('more announcements than a peer may make');
      }
    } else if (message.kind === 'withdraw') {
      for (const endpoint of message.endpoints) this.#table.withdraw(endpoint, peer);
    } else if (message.kind === 'caller') {
      this.#name(peer, addressOf(message.local), addressOf(message.client));
      socket.write(encodeMessage({ kind: 'named', local: message.local }));
    } else if (message.kind === 'forget') {
      const key = formatIpEndpoint(message.local);
      if (this.#named.get(peer)?.delete(key) === true) this.#options.sink.forgetTrueClient(addressOf(message.local));
    } else if (message.kind === 'hello') {
      throw new UsageError('a second hello');
    }
  }

  #forget(peer: number, socket: Socket): void {
    if (this.#hearing.get(peer) !== socket) return;
    this.#hearing.delete(peer);
    this.#forgetAll(peer);
  }

  #name(peer: number, local: Address, client: Address): void {
    const named = this.#named.get(peer) ?? new Map<string, Address>();
    if (named.size >= MAX_NAMED_PER_PEER) throw new UsageError('more callers than a peer may name');
    this.#options.sink.setTrueClient(local, client);
    this.#named.set(peer, named.set(formatIpEndpoint(endpointOf(local)), local));
  }

  #forgetAll(peer: number): void {
    this.#table.withdrawAll(peer);
    for (const local of this.#named.get(peer)?.values() ?? []) this.#options.sink.forgetTrueClient(local);
    this.#named.delete(peer);
  }
}

function checkNames({ name, peers }: AnnouncementsOptions): void {
  for (const one of [name, ...peers.map((peer) => peer.name)]) {
    if (!isNodeName(one)) throw new UsageError(`'${one}' is no name for a relay: letters, digits, '.', '_' and '-'`);
  }
  const seen = new Set([name]);
  for (const peer of peers) {
    if (seen.has(peer.name)) throw new UsageError(`two relays are called ${peer.name}`);
    seen.add(peer.name);
  }
}

/** Node shows IPv4 callers of a listener on :: as mapped. */
function plainHost(host: string): string {
  return host.replace(/^::ffff:/, '');
}

function isSameHost(from: string, expected: string): boolean {
  const canonical = (host: string): string => formatIpEndpoint(endpointOf(ip(plainHost(host), 0)));
  return canonical(from) === canonical(expected);
}

function familyOf(host: string): 4 | 6 {
  return host.includes(':') ? 6 : 4;
}

function isAnyAddress(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}
