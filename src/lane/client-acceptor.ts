// Accepts the clients that steering sent to this lane, in each network namespace that is served,
// and has each of them carried to a peer, or resets it. Where clients use up the ports that an
// address has for one listener, the lane opens another.

import type { StreamInfo } from '../channel/index.ts';
import { MillraceError, SystemError } from '../errors.ts';
import type { Descriptors } from '../headroom/index.ts';
import { Acceptor, type EventLoop } from '../loop/index.ts';
import { type Address, formatAddress, ip, type Socket } from '../native/index.ts';
import type { LaneSteering } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import type { LaneNamespaces } from './lane-namespaces.ts';
import { type ListenerPlace, ListenerSet } from './listener-set.ts';
import type { LaneSettings, ToLane } from './messages.ts';

/** What to do when the lane cannot listen. */
const listenAdvice: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use; choose others with listen.proxyPort',
  EADDRNOTAVAIL: 'this host has no such address; see listen.addresses',
  EACCES: 'ports below 1024 need more rights; choose another with listen.proxyPort',
};

/**
 * Of each address family, in the daemon's own network namespace: a program that opens connections
 * faster than they are accepted has their ports. In others it is one, of which there may be a
 * thousand.
 */
const ROOMY_LISTENERS = 4;

interface ClientAcceptorOptions {
  readonly loop: EventLoop;
  readonly settings: LaneSettings;
  readonly steering: LaneSteering;
  readonly events: ConnectionEvents;
  readonly namespaces: LaneNamespaces;
  readonly descriptors: Descriptors;
  /** Few descriptors are left: no more clients are to be steered here. */
  readonly onShort: () => void;
  /**
   * Opens a stream for the client, which takes the socket over. False when no peer can be reached
   * that announced the destination.
   */
  readonly openStream: (socket: Socket, info: StreamInfo) => boolean;
}

export class ClientAcceptor implements Disposable {
  readonly #options: ClientAcceptorOptions;
  /** By the cookie of their network namespace: one for each address family. */
  readonly #sets = new Map<number, readonly ListenerSet[]>();
  /** The listeners of clients that are open. */
  readonly #places = new Map<StreamInfo, ListenerPlace>();

  /** Throws when it cannot listen in the daemon's own network namespace. */
  constructor(options: ClientAcceptorOptions) {
    this.#options = options;
    const { listen, index } = options.settings;
    const addresses = listen.map((address) => portOfLane(address, index));
    this.#serve(this.#listenAt(addresses, ROOMY_LISTENERS));
  }

  /**
   * Clients in that network namespace, too. Where the lane cannot listen there, they are left to
   * plain TCP.
   */
  serveNetns({ netns, hosts }: Extract<ToLane, { kind: 'serveNetns' }>): void {
    if (this.#sets.has(netns)) return;
    const listen = (): readonly ListenerSet[] =>
      this.#listenAt(
        hosts.map((host) => ip(host, 0)),
        1,
      );
    try {
      this.#serve(this.#options.namespaces.in(netns, listen) ?? []);
    } catch (error) {
      if (!(error instanceof MillraceError) && !(error instanceof SystemError)) throw error;
      // The namespace is about to end, and its addresses are gone.
      if (error.cause instanceof SystemError && error.cause.code === 'EADDRNOTAVAIL') return;
      this.#options.events.error(`serve a network namespace: ${error.message}; its programs use plain TCP`);
    }
  }

  leaveNetns(netns: number): void {
    this.#options.steering.leave(netns);
    for (const set of this.#sets.get(netns) ?? []) set.close();
    this.#sets.delete(netns);
  }

  /** A client's socket is closed: there is room for another, and a descriptor. */
  closed(info: StreamInfo): void {
    const place = this.#places.get(info);
    if (place !== undefined) this.#left(info, place);
    // An acceptor that paused for want of a descriptor goes on.
    for (const sets of this.#sets.values()) for (const set of sets) set.reopen();
  }

  close(): void {
    for (const netns of this.#sets.keys()) this.leaveNetns(netns);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #serve(sets: readonly ListenerSet[]): void {
    const [first] = sets;
    if (first === undefined) return;
    const { netns } = first;
    this.#sets.set(netns, sets);
    this.#tell(netns, sets);
  }

  /** Where clients are sent from now on. */
  #tell(netns: number, sets: readonly ListenerSet[]): void {
    this.#options.steering.serve(
      netns,
      sets.flatMap(({ listeners }) => listeners),
    );
  }

  #listenAt(addresses: readonly Address[], roomy: number): readonly ListenerSet[] {
    using undo = new DisposableStack();
    const open = (at: Address, onAccept: (socket: Socket) => void): Acceptor => this.#listen(at, onAccept);
    const admit = (socket: Socket, place: ListenerPlace): void => this.#admit(socket, place);
    const sets = addresses.map((address) => undo.use(new ListenerSet({ address, roomy, open, admit })));
    undo.move();
    return sets;
  }

  #listen(address: Address, onAccept: (socket: Socket) => void): Acceptor {
    const { loop, settings, events, descriptors, onShort } = this.#options;
    try {
      return new Acceptor({
        loop,
        address,
        bufferBytes: settings.socketBufferBytes,
        onAccept,
        onPause: ({ code }) => {
          descriptors.noteShortage();
          onShort();
          events.error(`accept connections: ${code} (raise LimitNOFILE); new ones wait, and are reset after a second`);
        },
        onTurnedAway: () => events.counters.refused++,
      });
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      const reason = listenAdvice[error.code] ?? error.code;
      throw new MillraceError('MILLRACE_ERR_FAILED', `listen on ${formatAddress(address)}: ${reason}`, {
        cause: error,
      });
    }
  }

  #entered(info: StreamInfo, place: ListenerPlace): void {
    this.#places.set(info, place);
    place.set.entered(place);
    if (place.set.isStale) this.#refresh(place.set);
  }

  #left(info: StreamInfo, place: ListenerPlace): void {
    this.#places.delete(info);
    place.set.left(place);
    if (place.set.isStale) this.#refresh(place.set);
  }

  /** A listener has enough clients, or has room again. */
  #refresh(set: ListenerSet): void {
    const sets = this.#sets.get(set.netns);
    if (sets?.includes(set) !== true) return;
    const { namespaces, events } = this.#options;
    try {
      namespaces.in(set.netns, () => set.refresh());
    } catch (error) {
      if (!(error instanceof MillraceError)) throw error;
      events.error(`${error.message}; no more listeners are opened, and clients share those that there are`);
    }
    this.#tell(set.netns, sets);
  }

  #admit(socket: Socket, place: ListenerPlace): void {
    const { steering, events, descriptors, onShort, openStream } = this.#options;
    events.counters.accepted++;
    const hasRoom = descriptors.note(socket.fd);
    if (descriptors.isShort) onShort();
    try {
      const steered = steering.accepted(socket);
      if (steered === undefined) {
        events.counters.unsteered++;
        reset(socket);
        return;
      }
      const { client, original, connection } = steered;
      const { command, pid, netns } = connection;
      const info: StreamInfo = { client, original, isOpener: true, command, pid, netns };
      if (hasRoom && openStream(socket, info)) {
        this.#entered(info, place);
        return;
      }
      events.refused(info, '', hasRoom ? 'no peer that announced it can be reached' : 'few descriptors are left');
      reset(socket);
    } catch (error) {
      reset(socket);
      if (!(error instanceof SystemError)) throw error;
      // The client was reset before it was accepted.
      events.counters.resets++;
    }
  }
}

/** Each lane has a port of its own, so that one that is stuck can be left out. */
function portOfLane(address: Address, lane: number): Address {
  return address.family === 'unix' || address.port === 0 ? address : { ...address, port: address.port + lane };
}

function reset(socket: Socket): void {
  if (socket.isClosed) return;
  socket.resetOnClose();
  socket.close();
}
