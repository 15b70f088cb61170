// Accepts the clients that steering sent to this lane, and has each of them carried to a peer, or
// resets it.

import type { StreamInfo } from '../channel/index.ts';
import { MillraceError, SystemError } from '../errors.ts';
import { Acceptor, type EventLoop } from '../loop/index.ts';
import { type Address, formatAddress, type Socket } from '../native/index.ts';
import type { ConnectionMaps } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import type { LaneSettings } from './messages.ts';

/** What to do when the lane cannot listen. */
const listenAdvice: Readonly<Record<string, string>> = {
  EADDRINUSE: 'the port is in use; choose another with listen.proxyPort',
  EADDRNOTAVAIL: 'this host has no such address; see listen.addresses',
  EACCES: 'ports below 1024 need more rights; choose another with listen.proxyPort',
};

interface ClientAcceptorOptions {
  readonly loop: EventLoop;
  readonly settings: LaneSettings;
  readonly maps: ConnectionMaps;
  readonly events: ConnectionEvents;
  /**
   * Opens a stream for the client, which takes the socket over. False when no peer can be reached
   * that announced the destination.
   */
  readonly openStream: (socket: Socket, info: StreamInfo) => boolean;
}

export class ClientAcceptor implements Disposable {
  readonly #options: ClientAcceptorOptions;
  readonly #acceptors: Acceptor[] = [];

  constructor(options: ClientAcceptorOptions) {
    this.#options = options;
    using undo = new DisposableStack();
    for (const address of options.settings.listen) this.#acceptors.push(undo.use(this.#listen(address)));
    undo.move();
  }

  /** A descriptor is about to be closed: an acceptor that paused for want of one goes on. */
  resume(): void {
    for (const acceptor of this.#acceptors) acceptor.reopen();
  }

  close(): void {
    for (const acceptor of this.#acceptors) acceptor.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #listen(address: Address): Acceptor {
    const { loop, settings, events } = this.#options;
    try {
      return new Acceptor({
        loop,
        address,
        bufferBytes: settings.socketBufferBytes,
        isShared: settings.lanes > 1,
        onAccept: (socket) => this.#admit(socket),
        onPause: ({ code }) => events.error(`accept connections: ${code} (raise LimitNOFILE); new ones wait`),
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
    const { maps, events, openStream } = this.#options;
    events.counters.accepted++;
    try {
      const client = socket.peerAddress;
      const steered = maps.take(client);
      if (steered === undefined) {
        events.counters.unsteered++;
        reset(socket);
        return;
      }
      const { original, connection } = steered;
      const { command, pid } = connection;
      const info: StreamInfo = { client, original, local: client, isOpener: true, command, pid };
      if (openStream(socket, info)) return;
      events.refused(info, '', 'no peer that announced it can be reached');
      reset(socket);
    } catch (error) {
      reset(socket);
      if (!(error instanceof SystemError)) throw error;
      // The client was reset before it was accepted, and has no address any more.
      events.counters.resets++;
    }
  }
}

function reset(socket: Socket): void {
  if (socket.isClosed) return;
  socket.resetOnClose();
  socket.close();
}
