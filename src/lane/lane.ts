// A lane: its devices, its sessions with peers, the clients it accepts and the servers it dials.
// What the main thread tells it, and what it reports, are the messages of messages.ts.

import {
  AcceptingSession,
  DialingSession,
  LinkContext,
  type Session,
  type SessionHost,
  type SessionOptions,
  type Stream,
  type StreamInfo,
} from '../channel/index.ts';
import { UsageError } from '../errors.ts';
import { Descriptors } from '../headroom/index.ts';
import type { EventLoop } from '../loop/index.ts';
import type { Socket } from '../native/index.ts';
import type { ConnectionStatus, LinkStatus } from '../status/index.ts';
import { LaneSteering } from '../steering/index.ts';
import { ClientAcceptor } from './client-acceptor.ts';
import { ConnectionEvents } from './connection-events.ts';
import { DevicePool, meetingPlace } from './device-pool.ts';
import { LaneNamespaces } from './lane-namespaces.ts';
import { connectionStatus, linkStatus, mirroredStatus } from './lane-status.ts';
import type { FromLane, LaneConnections, LaneReport, LaneSettings, MirroredStatus, ToLane } from './messages.ts';
import { Mirrors } from './mirrors.ts';
import { Routes } from './routes.ts';
import { ServerDialer } from './server-dialer.ts';
import { sessionOptions } from './session-options.ts';

/** The thread that the lane runs in. */
interface LaneHost {
  /** Posts a message to the main thread. */
  tell(message: FromLane): void;
  /** Runs Node's loop until the promise settles. */
  wait(work: Promise<void>): void;
}

/** Sessions with one peer, by the number of their link. */
type PeerSessions = Map<number, Session>;

export class Lane implements Disposable {
  readonly #settings: LaneSettings;
  readonly #host: LaneHost;
  readonly #loop: EventLoop;
  readonly #context: LinkContext;
  readonly #devices: DevicePool;
  readonly #options: SessionOptions;
  readonly #events: ConnectionEvents;
  readonly #steering: LaneSteering;
  readonly #descriptors: Descriptors;
  /** The kernel was told that there is no room for more. */
  #isFull = false;
  readonly #namespaces: LaneNamespaces;
  readonly #acceptor: ClientAcceptor;
  readonly #dialer: ServerDialer;
  readonly #routes = new Routes();
  readonly mirrors: Mirrors;
  readonly #peers = new Map<string, PeerSessions>();
  #sessions: Session[] = [];
  /** Those with a link, in one list for the loop: peers that nothing is sent to cost it nothing. */
  #linked: Session[] = [];
  readonly #undo: DisposableStack;

  constructor(loop: EventLoop, settings: LaneSettings, host: LaneHost) {
    using undo = new DisposableStack();
    this.#settings = settings;
    this.#host = host;
    this.#loop = loop;
    this.#options = { ...sessionOptions(settings), place: meetingPlace(settings.device) };
    const steering = undo.use(new LaneSteering(settings.instance, settings.index));
    this.#steering = steering;
    steering.beat();
    this.#devices = undo.use(new DevicePool(settings.device));
    const { memoryBytes, recordsPerSend } = settings.channel;
    this.#context = undo.use(new LinkContext(loop, { memoryBytes: memoryBytes / settings.lanes, recordsPerSend }));
    const events = new ConnectionEvents((message) => host.tell(message));
    this.#events = events;
    const namespaces = undo.use(new LaneNamespaces());
    this.#namespaces = namespaces;
    const descriptors = new Descriptors(settings.descriptors);
    this.#descriptors = descriptors;
    this.#dialer = new ServerDialer({ steering, events, namespaces, descriptors, settings });
    const openStream = (socket: Socket, info: StreamInfo): boolean => this.#openStream(socket, info);
    const onShort = (): void => this.#full();
    this.#acceptor = undo.use(
      new ClientAcceptor({ loop, settings, steering, events, namespaces, descriptors, onShort, openStream }),
    );
    const sessionOf = (peer: string, link: number): Session | undefined => this.#peers.get(peer)?.get(link);
    this.mirrors = undo.use(new Mirrors({ loop, sessionOf, tell: (message) => host.tell(message) }));
    this.#undo = undo.move();
  }

  /** Those that have a link. */
  get linkedSessions(): readonly Session[] {
    return this.#linked;
  }

  hear(message: ToLane): void {
    switch (message.kind) {
      case 'peerUp':
        this.#peerUp(message);
        break;
      case 'peerDown':
        for (const session of this.#sessionsWith(message.peer)) session.peerDown();
        break;
      case 'peerDead':
        for (const session of this.#sessionsWith(message.peer)) session.close('the daemon of the peer has ended');
        break;
      case 'peerGone':
        for (const session of this.#sessionsWith(message.peer)) session.close(message.reason);
        this.#peers.delete(message.peer);
        this.#dialer.setClients(message.peer, []);
        this.#listSessions();
        break;
      case 'link':
        this.#peers.get(message.peer)?.get(message.link)?.hear(message.body);
        break;
      case 'want':
        this.#peers.get(message.peer)?.get(message.link)?.want();
        break;
      case 'routes':
        this.#routes.change(message.peer, message.added, message.removed);
        break;
      case 'clients':
        this.#dialer.setClients(message.peer, message.hosts);
        break;
      case 'listeners':
        this.#dialer.setListeners(message.lists);
        break;
      case 'listenersChanged':
        this.#dialer.changeListeners(message);
        break;
      case 'gates':
        this.#dialer.changeGates(message);
        break;
      case 'serveNetns':
        this.#namespaces.add(message.netns, message.fd);
        this.#acceptor.serveNetns(message);
        break;
      case 'leaveNetns':
        this.#acceptor.leaveNetns(message.netns);
        this.#namespaces.remove(message.netns);
        break;
      case 'arena':
      case 'mirror':
      case 'unmirror':
      case 'trim':
      case 'arenaGone':
      case 'unmirrorAll':
        this.mirrors.hear(message);
        break;
      case 'break':
        for (const session of this.#sessionsWith(message.peer)) session.breakTransport();
        break;
      case 'subscribe':
        this.#events.isSubscribed = message.isSubscribed;
        break;
      default:
        throw new UsageError(`a lane was told ${message.kind}`);
    }
  }

  /** Tells the kernel whether this lane takes connections; at least every LANE_BEAT_NS. */
  signOfLife(): void {
    if (this.#descriptors.isShort) this.#descriptors.look();
    if (this.#descriptors.isShort) {
      this.#full();
      return;
    }
    this.#isFull = false;
    this.#steering.beat();
  }

  #full(): void {
    if (this.#isFull) return;
    this.#isFull = true;
    this.#steering.setFull();
  }

  /** Does what is due by the clock. */
  beat(isHeartbeat: boolean): void {
    for (const session of this.#sessions) session.beat(isHeartbeat);
  }

  /** Resets what is still open. */
  close(): void {
    for (const session of this.#sessions) session.close('the daemon stops');
    // Closed transports are freed in the turn after.
    this.#loop.turn(0);
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  // Sessions

  #sessionsWith(peer: string): Iterable<Session> {
    return this.#peers.get(peer)?.values() ?? [];
  }

  #peerUp({ peer, isDialer, isSame, links }: Extract<ToLane, { kind: 'peerUp' }>): void {
    const known: PeerSessions = this.#peers.get(peer) ?? new Map();
    this.#peers.set(peer, known);
    for (const [link, session] of known) {
      if (links.includes(link) && session.isDialer === isDialer) continue;
      session.close('the peer has other lanes now');
      known.delete(link);
    }
    for (const link of links) {
      let session = known.get(link);
      if (session === undefined) {
        const Kind = isDialer ? DialingSession : AcceptingSession;
        session = new Kind(this.#context, this.#options, this.#hostOf(peer, link));
        known.set(link, session);
      }
      session.peerUp(isSame);
    }
    this.#listSessions();
  }

  #listSessions(): void {
    this.#sessions = Array.from(this.#peers.values()).flatMap((sessions) => [...sessions.values()]);
    this.#listLinked();
  }

  #listLinked(): void {
    this.#linked = this.#sessions.filter(({ link }) => link !== undefined);
  }

  #hostOf(peer: string, link: number): SessionHost {
    return {
      send: (body) => {
        this.#host.tell({ kind: 'link', peer, link, body });
        return true;
      },
      openDevice: (name) => this.#devices.open(name),
      dialServer: (client, original) => this.#dialer.dial(client, original, peer),
      onSocketClosed: (stream) => this.#socketClosed(stream, peer),
      onState: (state, reason) => {
        const wire = this.#peers.get(peer)?.get(link)?.wire ?? '';
        this.#host.tell({ kind: 'state', peer, link, state, reason, wire });
      },
      onLink: () => this.#listLinked(),
      onOpened: (info) => this.#events.opened(info, peer, this.#peers.get(peer)?.get(link)?.wire),
      onRefused: (info, reason) => {
        this.#events.refused(info, peer, reason);
        this.#acceptor.closed(info);
      },
      onProtocolError: (reason) => this.#host.tell({ kind: 'protocolError', peer, reason }),
      wait: (work) => this.#host.wait(work),
    };
  }

  // Streams

  /** On the least used link to the first peer that announced the server and can be reached. */
  #openStream(socket: Socket, info: StreamInfo): boolean {
    for (const peer of this.#routes.peersOf(info.original)) {
      let best: Session | undefined;
      for (const session of this.#sessionsWith(peer)) if (streamsOf(session) < streamsOf(best)) best = session;
      if (best?.open(socket, info) === true) return true;
    }
    return false;
  }

  #socketClosed(stream: Stream, peer: string): void {
    this.#events.closed(stream, peer);
    this.#acceptor.closed(stream.info);
  }

  // Status

  get heldBytes(): number {
    return this.#context.pool.borrowedCount * this.#context.pool.bufferBytes;
  }

  get connectionCount(): number {
    let count = 0;
    for (const session of this.#sessions) count += session.connectionCount;
    return count;
  }

  report(lane: LaneReport['lane']): LaneReport {
    const links: (LinkStatus & { peer: string })[] = [];
    let bytesOut = 0;
    let bytesIn = 0;
    for (const [peer, sessions] of this.#peers) {
      for (const [index, session] of sessions) {
        const status = linkStatus(index, this.#settings.index, session);
        bytesOut += status.bytesOut;
        bytesIn += status.bytesIn;
        links.push({ ...status, peer });
      }
    }
    return { lane, links, ...this.#events.counters, bytesOut, bytesIn };
  }

  connections(): LaneConnections {
    const carried: ConnectionStatus[] = [];
    const mirrored: MirroredStatus[] = [];
    const { index } = this.#settings;
    for (const [peer, sessions] of this.#peers) {
      for (const { link, wire } of sessions.values()) {
        for (const stream of link?.streams ?? []) carried.push(connectionStatus(stream, peer, wire, index));
        for (const stream of link?.directStreams ?? []) mirrored.push(mirroredStatus(stream, wire, index));
      }
    }
    return { carried, mirrored };
  }
}

function streamsOf(session: Session | undefined): number {
  return session?.streamCount ?? Number.POSITIVE_INFINITY;
}
