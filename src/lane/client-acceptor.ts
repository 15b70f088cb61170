// Accepts the clients that steering sent to this lane, in each network namespace that is served,
// and has each of them carried to a peer, or resets it.

import type { StreamInfo } from '../channel/index.ts';
import { MillraceError, SystemError } from '../errors.ts';
import type { Descriptors } from '../headroom/index.ts';
import { Acceptor, type EventLoop } from '../loop/index.ts';
import { type Address, formatAddress, ip, type Socket } from '../native/index.ts';
import type { LaneSteering } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import type { LaneNamespaces } from './lane-namespaces.ts';
import type { LaneSettings, ToLane } from './messages.ts';

/** What to do when the lane cannot listen. */
const listenAdvice: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use; choose others with listen.proxyPort',
  EADDRNOTAVAIL: 'this host has no such address; see listen.addresses',
  EACCES: 'ports below 1024 need more rights; choose another with listen.proxyPort',
};

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
  /** By the cookie of their network namespace. */
  readonly #acceptors = new Map<number, readonly Acceptor[]>();

  /** Throws when it cannot listen in the daemon's own network namespace. */
  constructor(options: ClientAcceptorOptions) {
    this.#options = options;
    this.#serve(this.#listenAt(options.settings.listen.map((address) => portOfLane(address, options.settings.index))));
  }

  /**
   * Clients in that network namespace, too. Where the lane cannot listen there, they are left to
   * plain TCP.
   */
  serveNetns({ netns, hosts }: Extract<ToLane, { kind: 'serveNetns' }>): void {
    if (this.#acceptors.has(netns)) return;
    const listen = (): readonly Acceptor[] => this.#listenAt(hosts.map((host) => ip(host, 0)));
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
    for (const acceptor of this.#acceptors.get(netns) ?? []) acceptor.close();
    this.#acceptors.delete(netns);
  }

  /** A descriptor is about to be closed: an acceptor that paused for want of one goes on. */
  resume(): void {
    for (const acceptors of this.#acceptors.values()) for (const acceptor of acceptors) acceptor.reopen();
  }

  close(): void {
    for (const netns of this.#acceptors.keys()) this.leaveNetns(netns);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #serve(acceptors: readonly Acceptor[]): void {
    const [first] = acceptors;
    if (first === undefined) return;
    const netns = first.listener.netnsCookie;
    this.#acceptors.set(netns, acceptors);
    this.#options.steering.serve(
      netns,
      acceptors.map(({ listener }) => listener),
    );
  }

  #listenAt(addresses: readonly Address[]): readonly Acceptor[] {
    using undo = new DisposableStack();
    const acceptors = addresses.map((address) => undo.use(this.#listen(address)));
    undo.move();
    return acceptors;
  }

  #listen(address: Address): Acceptor {
    const { loop, settings, events, descriptors, onShort } = this.#options;
    try {
      return new Acceptor({
        loop,
        address,
        bufferBytes: settings.socketBufferBytes,
        onAccept: (socket) => this.#admit(socket),
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

  #admit(socket: Socket): void {
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
      if (hasRoom && openStream(socket, info)) return;
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
