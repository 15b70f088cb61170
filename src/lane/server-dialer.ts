// Connects to servers of this host for the clients of peers, as far as this host announced those
// servers to that peer and the clients' addresses are their peer's.

import { constants } from 'node:os';
import type { Leg, StreamInfo } from '../channel/index.ts';
import { SystemError } from '../errors.ts';
import { isShortage, prepareLeg } from '../loop/index.ts';
import { type Address, formatAddress, Socket } from '../native/index.ts';
import type { LaneSteering } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import type { ListenerList } from './messages.ts';
import { announcedEndpoint } from './routes.ts';

const { EACCES, ECONNREFUSED, EADDRNOTAVAIL } = constants.errno;

export class ServerDialer {
  readonly #steering: Pick<LaneSteering, 'setTrueClient'>;
  readonly #events: ConnectionEvents;
  readonly #bufferBytes: number;
  /** By peer, the endpoints of servers here that it may connect to. */
  #listeners: ReadonlyMap<string, ReadonlySet<string>> = new Map();
  /** By peer, the addresses that its clients may have. */
  readonly #clients = new Map<string, ReadonlySet<string>>();

  constructor(steering: Pick<LaneSteering, 'setTrueClient'>, events: ConnectionEvents, bufferBytes: number) {
    this.#steering = steering;
    this.#events = events;
    this.#bufferBytes = bufferBytes;
  }

  setListeners(lists: readonly ListenerList[]): void {
    this.#listeners = new Map(
      lists.flatMap(({ peers, endpoints }) => {
        const shared = new Set(endpoints);
        return peers.map((peer) => [peer, shared] as const);
      }),
    );
  }

  setClients(peer: string, hosts: readonly string[]): void {
    if (hosts.length === 0) this.#clients.delete(peer);
    else this.#clients.set(peer, new Set(hosts));
  }

  /** The leg to the server, or the errno with which the client is refused. */
  dial(client: Address, original: Address, peer: string): Leg | number {
    const info: StreamInfo = { client, original, isOpener: false, command: '', pid: 0 };
    if (original.family === 'unix' || this.#listeners.get(peer)?.has(announcedEndpoint(original)) !== true) {
      this.#events.refused(info, peer, 'no server of this host that was announced to this peer');
      return ECONNREFUSED;
    }
    if (client.family === 'unix' || this.#clients.get(peer)?.has(client.host) !== true) {
      this.#events.refused(info, peer, 'its address is none of that peer’s host');
      return EACCES;
    }
    let socket: Socket | undefined;
    try {
      socket = Socket.stream(original.family);
      prepareLeg(socket, this.#bufferBytes);
      // Before the connect: the server may ask for its client as soon as that is on its way.
      this.#steering.setTrueClient(socket, client);
      // A server of this host has answered by now, and the second call says so.
      const isConnecting = !socket.connect(original) && !socket.connect(original);
      this.#events.opened(info, peer);
      return { socket, isConnecting, info };
    } catch (error) {
      socket?.close();
      if (!(error instanceof SystemError)) throw error;
      this.#events.refused(info, peer, `connect to the server: ${error.code}`);
      if (isShortage(error) || error.errno === -EADDRNOTAVAIL) {
        const server = formatAddress(original);
        this.#events.error(`connect to ${server} for a client of ${peer}: ${error.message}; the client is reset`);
      }
      return -error.errno;
    }
  }
}
