// Connects to servers of this host for the clients of peers, as far as this host announced those
// servers.

import { constants } from 'node:os';
import type { Leg, StreamInfo } from '../channel/index.ts';
import { SystemError } from '../errors.ts';
import { isShortage, prepareLeg, SourcePorts } from '../loop/index.ts';
import { type Address, formatAddress, Socket } from '../native/index.ts';
import type { ConnectionMaps } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import { announcedEndpoint } from './routes.ts';

const { ECONNREFUSED, EADDRNOTAVAIL } = constants.errno;

export class ServerDialer {
  readonly #maps: ConnectionMaps;
  readonly #events: ConnectionEvents;
  readonly #bufferBytes: number;
  readonly #ports = new SourcePorts();
  /** Endpoints of servers here that peers may connect to. */
  #listeners: ReadonlySet<string> = new Set();

  constructor(maps: ConnectionMaps, events: ConnectionEvents, bufferBytes: number) {
    this.#maps = maps;
    this.#events = events;
    this.#bufferBytes = bufferBytes;
  }

  setListeners(endpoints: Iterable<string>): void {
    this.#listeners = new Set(endpoints);
  }

  /** The leg to the server, or the errno with which the client is refused. */
  dial(client: Address, original: Address, peer: string): Leg | number {
    const info: StreamInfo = { client, original, local: client, isOpener: false, command: '', pid: 0 };
    if (original.family === 'unix' || !this.#listeners.has(announcedEndpoint(original))) {
      this.#events.refused(info, peer, 'no server of this host that was announced');
      return ECONNREFUSED;
    }
    let socket: Socket | undefined;
    let local: Address | undefined;
    try {
      socket = Socket.stream(original.family);
      prepareLeg(socket, this.#bufferBytes);
      local = this.#ports.bind(socket, original.host);
      // Before the connect: the server may ask for its client as soon as that is on its way.
      this.#maps.setTrueClient(local, client);
      // A server of this host has answered by now, and the second call says so.
      const isConnecting = !socket.connect(original) && !socket.connect(original);
      const dialed = { ...info, local };
      this.#events.opened(dialed, peer);
      return { socket, isConnecting, info: dialed };
    } catch (error) {
      socket?.close();
      if (local !== undefined) this.release(local);
      if (!(error instanceof SystemError)) throw error;
      this.#events.refused(info, peer, `connect to the server: ${error.code}`);
      if (isShortage(error) || error.errno === -EADDRNOTAVAIL) {
        const server = formatAddress(original);
        this.#events.error(`connect to ${server} for a client of ${peer}: ${error.message}; the client is reset`);
      }
      return -error.errno;
    }
  }

  /** The socket of a leg that was bound to this address is closed. */
  release(local: Address): void {
    this.#maps.forgetTrueClient(local);
    this.#ports.release(local);
  }
}
