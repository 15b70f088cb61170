// The carrier: one lane's part of the daemon. Takes connections that were steered here to the peers that announced their
// destination, and calls servers of this host for peers.

import { constants } from 'node:os';
import {
  CalledSession,
  CallingSession,
  LaneParts,
  type Session,
  type SessionEvents,
  type SessionOptions,
  type Stream,
  type StreamAbout,
} from '../channel/index.ts';
import { MillraceError, SystemError, UsageError } from '../errors.ts';
import { Acceptor, type EventLoop, isShortage, prepareLeg, SourcePorts } from '../loop/index.ts';
import { type Address, formatAddress, Socket } from '../native/index.ts';
import type { ConnectionStatus, LinkStatus } from '../status/index.ts';
import { ConnectionMaps, endpointOf, formatIpEndpoint } from '../steering/index.ts';
import { type ConnectionNews, connectionEvent } from './connection-news.ts';
import { DeviceShelf, meetingPlace } from './device-shelf.ts';
import { connectionStatus, linkStatus } from './lane-status.ts';
import type { FromLane, LaneReport, LaneSettings, ToLane } from './messages.ts';
import { sessionOptions } from './session-options.ts';

const { ECONNREFUSED, EADDRNOTAVAIL } = constants.errno;

/** What to do when a door cannot be opened. */
const doorProblems: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use; choose another with listen.proxyPort',
  EADDRNOTAVAIL: 'this host has no such address; see listen.addresses',
  EACCES: 'ports below 1024 need more rights; choose another with listen.proxyPort',
};

interface PeerLinks {
  readonly sessions: Map<number, Session>;
}

export interface CarrierHost {
  tell(message: FromLane): void;
  wait(work: Promise<void>): void;
}

export class Carrier implements Disposable {
  readonly #settings: LaneSettings;
  readonly #host: CarrierHost;
  readonly #lane: EventLoop;
  readonly #parts: LaneParts;
  readonly #maps: ConnectionMaps;
  readonly #doors: Acceptor[] = [];
  readonly #ports = new SourcePorts();
  readonly #devices: DeviceShelf;
  readonly #options: SessionOptions;
  readonly #peers = new Map<string, PeerLinks>();
  /** All of them, in one list for the loop. */
  #sessions: Session[] = [];
  /** IpEndpoint of a server to the peers that announced it. */
  readonly #routes = new Map<string, string[]>();
  /** Endpoints of servers here that peers may call. */
  #listeners: ReadonlySet<string> = new Set();
  readonly #undo: DisposableStack;
  #isHeard = false;
  #opened = 0;
  #accepted = 0;
  #refused = 0;
  #resets = 0;
  #strangers = 0;

  constructor(lane: EventLoop, settings: LaneSettings, host: CarrierHost) {
    using undo = new DisposableStack();
    this.#settings = settings;
    this.#host = host;
    this.#lane = lane;
    this.#options = { ...sessionOptions(settings), place: meetingPlace(settings.device) };
    this.#maps = undo.use(ConnectionMaps.open(settings.instance));
    this.#devices = undo.use(new DeviceShelf(settings.device));
    const { memoryBytes, recordsPerSend } = settings.channel;
    this.#parts = undo.use(new LaneParts(lane, { memoryBytes: memoryBytes / settings.lanes, recordsPerSend }));
    for (const address of settings.listen) this.#doors.push(undo.use(this.#openDoor(address)));
    this.#undo = undo.move();
  }

  get sessions(): readonly Session[] {
    return this.#sessions;
  }

  get heldBytes(): number {
    return this.#parts.pool.borrowedCount * this.#parts.pool.bufferBytes;
  }

  hear(message: ToLane): void {
    switch (message.kind) {
      case 'peerUp':
        this.#peerUp(message);
        break;
      case 'peerDown':
        for (const session of this.#linksOf(message.peer)) session.peerDown();
        break;
      case 'peerDead':
        for (const session of this.#linksOf(message.peer)) session.close('the peer’s daemon has ended');
        break;
      case 'peerGone':
        for (const session of this.#linksOf(message.peer)) session.close(message.reason);
        this.#peers.delete(message.peer);
        this.#listSessions();
        break;
      case 'link':
        this.#peers.get(message.peer)?.sessions.get(message.link)?.hear(message.body);
        break;
      case 'routes':
        this.#setRoutes(message.peer, message.added, message.removed);
        break;
      case 'listeners':
        this.#listeners = new Set(message.endpoints);
        break;
      case 'break':
        for (const session of this.#linksOf(message.peer)) session.breakTransport();
        break;
      case 'hear':
        this.#isHeard = message.isHeard;
        break;
      case 'drain':
        for (const door of this.#doors) door.close();
        break;
      default:
        throw new UsageError(`a lane was told ${message.kind}`);
    }
  }

  /** What is due by the clock. */
  beat(isHeartbeat: boolean): void {
    for (const session of this.#sessions) session.beat(isHeartbeat);
  }

  /** Resets what is still open. */
  close(): void {
    for (const session of this.#sessions) session.close('the daemon stops');
    // What they left to the next turn.
    this.#lane.turn(0);
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #linksOf(peer: string): Iterable<Session> {
    return this.#peers.get(peer)?.sessions.values() ?? [];
  }

  #peerUp({ peer, isDialer, isSame, links }: Extract<ToLane, { kind: 'peerUp' }>): void {
    const known = this.#peers.get(peer) ?? { sessions: new Map<number, Session>() };
    this.#peers.set(peer, known);
    for (const [link, session] of known.sessions) {
      if (links.includes(link) && session.isDialer === isDialer) continue;
      session.close('the peer has other lanes now');
      known.sessions.delete(link);
    }
    for (const link of links) {
      let session = known.sessions.get(link);
      if (session === undefined) {
        const Kind = isDialer ? CallingSession : CalledSession;
        session = new Kind(this.#parts, this.#options, this.#eventsOf(peer, link));
        known.sessions.set(link, session);
      }
      session.peerUp(isSame);
    }
    this.#listSessions();
  }

  #listSessions(): void {
    this.#sessions = Array.from(this.#peers.values()).flatMap(({ sessions }) => [...sessions.values()]);
  }

  #eventsOf(peer: string, link: number): SessionEvents {
    return {
      send: (body) => {
        this.#host.tell({ kind: 'link', peer, link, body });
        return true;
      },
      openDevice: (name) => this.#devices.open(name),
      onCall: (client, original) => this.#call(client, original, peer),
      onSocketClosed: (stream) => this.#socketClosed(stream, peer),
      onState: (state, reason) => {
        const wire = this.#peers.get(peer)?.sessions.get(link)?.wire ?? '';
        this.#host.tell({ kind: 'state', peer, link, state, reason, wire });
      },
      onProtocolError: (reason) => this.#host.tell({ kind: 'lie', peer, reason }),
      wait: (work) => this.#host.wait(work),
    };
  }

  #setRoutes(peer: string, added: readonly string[], removed: readonly string[]): void {
    for (const endpoint of removed) {
      const left = (this.#routes.get(endpoint) ?? []).filter((name) => name !== peer);
      if (left.length === 0) this.#routes.delete(endpoint);
      else this.#routes.set(endpoint, left);
    }
    for (const endpoint of added) {
      const others = (this.#routes.get(endpoint) ?? []).filter((name) => name !== peer);
      this.#routes.set(endpoint, [...others, peer]);
    }
  }

  // Programs of this host call.

  #openDoor(address: Address): Acceptor {
    try {
      return new Acceptor({
        lane: this.#lane,
        address,
        bufferBytes: this.#settings.socketBufferBytes,
        isShared: this.#settings.lanes > 1,
        onCaller: (socket) => this.#admit(socket),
        onPause: ({ code }) => this.#reportError(`accept connections: ${code} (raise LimitNOFILE); new ones wait`),
      });
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      const reason = doorProblems[error.code] ?? error.code;
      throw new MillraceError('MILLRACE_ERR_FAILED', `listen on ${formatAddress(address)}: ${reason}`, {
        cause: error,
      });
    }
  }

  #admit(socket: Socket): void {
    this.#accepted++;
    try {
      const client = socket.peerAddress;
      const taken = this.#maps.take(client);
      if (taken === undefined) {
        this.#strangers++;
        refuse(socket);
        return;
      }
      const { original, connection } = taken;
      const about = {
        client,
        original,
        local: client,
        isOpener: true,
        command: connection.command,
        pid: connection.pid,
      };
      if (!this.#carry(socket, about)) {
        this.#refused++;
        if (this.#isHeard) this.#publish('refused', about, '', { reason: 'no peer that announced it can be reached' });
        refuse(socket);
      }
    } catch (error) {
      refuse(socket);
      if (!(error instanceof SystemError)) throw error;
      // The client was reset before it was accepted, and has no address any more.
      this.#resets++;
    }
  }

  #carry(socket: Socket, about: StreamAbout): boolean {
    const endpoint = serverOf(about.original);
    for (const peer of this.#routes.get(endpoint) ?? []) {
      let best: Session | undefined;
      for (const session of this.#linksOf(peer)) {
        const isBetter = streamsOf(session) < streamsOf(best);
        if (isBetter) best = session;
      }
      if (best?.open(socket, about) === true) {
        this.#opened++;
        if (this.#isHeard) this.#publish('opened', about, peer, { wire: best.wire });
        return true;
      }
    }
    return false;
  }

  // Peers call servers of this host.

  #call(
    client: Address,
    original: Address,
    peer: string,
  ): { socket: Socket; isConnecting: boolean; about: StreamAbout } | number {
    if (original.family === 'unix' || !this.#listeners.has(serverOf(original))) {
      this.#refused++;
      if (this.#isHeard) {
        const about = { client, original, local: client, isOpener: false, command: '', pid: 0 };
        this.#publish('refused', about, peer, { reason: 'no server of this host that was announced' });
      }
      return ECONNREFUSED;
    }
    let socket: Socket | undefined;
    let local: Address | undefined;
    try {
      socket = Socket.stream(original.family);
      prepareLeg(socket, this.#settings.socketBufferBytes);
      local = this.#ports.bind(socket, original.host);
      // First: the server may look as soon as the connect is on its way.
      this.#maps.setTrueClient(local, client);
      // A server of this host has answered by now, and the second call says so.
      const isConnecting = !socket.connect(original) && !socket.connect(original);
      const about = { client, original, local, isOpener: false, command: '', pid: 0 };
      this.#opened++;
      if (this.#isHeard) this.#publish('opened', about, peer);
      return { socket, isConnecting, about };
    } catch (error) {
      socket?.close();
      if (local !== undefined) this.#forget(local);
      if (!(error instanceof SystemError)) throw error;
      this.#refused++;
      if (this.#isHeard) {
        const about = { client, original, local: client, isOpener: false, command: '', pid: 0 };
        this.#publish('refused', about, peer, { reason: `call the server: ${error.code}` });
      }
      if (isShortage(error) || error.errno === -EADDRNOTAVAIL) {
        this.#reportError(`call ${formatAddress(original)} for a peer: ${error.message}; its program is reset`);
      }
      return -error.errno;
    }
  }

  #socketClosed(stream: Stream, peer: string): void {
    const { about } = stream;
    if (this.#isHeard) this.#publish(stream.refusal === 0 ? 'closed' : 'refused', about, peer, stream);
    if (!about.isOpener) this.#forget(about.local);
    for (const door of this.#doors) door.reopen();
  }

  #forget(local: Address): void {
    this.#maps.forgetTrueClient(local);
    this.#ports.release(local);
  }

  /** Only while somebody listens. */
  #publish(what: 'opened' | 'closed' | 'refused', about: StreamAbout, peer: string, more: ConnectionNews = {}): void {
    this.#host.tell({ kind: 'connection', event: connectionEvent(what, about, peer, more) });
  }

  #reportError(message: string): void {
    this.#host.tell({ kind: 'error', message });
  }

  // For people.

  report(lane: LaneReport['lane']): LaneReport {
    const links: (LinkStatus & { peer: string })[] = [];
    let bytesOut = 0;
    let bytesIn = 0;
    for (const [peer, { sessions }] of this.#peers) {
      for (const [index, session] of sessions) {
        const status = linkStatus(index, this.#settings.index, session);
        bytesOut += status.bytesOut;
        bytesIn += status.bytesIn;
        links.push({ ...status, peer });
      }
    }
    return {
      lane,
      links,
      opened: this.#opened,
      accepted: this.#accepted,
      refused: this.#refused,
      resets: this.#resets,
      strangers: this.#strangers,
      bytesOut,
      bytesIn,
    };
  }

  get streamCount(): number {
    let count = 0;
    for (const session of this.#sessions) count += streamsOf(session);
    return count;
  }

  connections(): readonly ConnectionStatus[] {
    const all: ConnectionStatus[] = [];
    for (const [peer, { sessions }] of this.#peers) {
      for (const session of sessions.values()) {
        for (const stream of session.link?.streams ?? []) {
          all.push(connectionStatus(stream, peer, session.wire, this.#settings.index));
        }
      }
    }
    return all;
  }
}

/** As peers announce it. */
function serverOf(address: Address): string {
  return address.family === 'ipv4' ? formatAddress(address) : formatIpEndpoint(endpointOf(address));
}

function streamsOf(session: Session | undefined): number {
  return session === undefined ? Number.POSITIVE_INFINITY : (session.link?.streamCount ?? 0);
}

function refuse(socket: Socket): void {
  if (socket.isClosed) return;
  socket.resetOnClose();
  socket.close();
}
