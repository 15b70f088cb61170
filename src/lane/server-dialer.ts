// Connects to servers of this host for the clients of peers. Where packets are asked, only through
// a gate, which the peer's own packets have opened; or else to servers that this host announced to
// that peer, for clients at addresses of their peer's host.

import { constants } from 'node:os';
import type { Leg, StreamInfo } from '../channel/index.ts';
import { isShortage, SystemError } from '../errors.ts';
import type { Descriptors } from '../headroom/index.ts';
import { prepareLeg } from '../loop/index.ts';
import { type Address, formatAddress, ip, type Socket } from '../native/index.ts';
import { addressOf, type LaneSteering } from '../steering/index.ts';
import type { ConnectionEvents } from './connection-events.ts';
import type { LaneNamespaces } from './lane-namespaces.ts';
import type { LaneSettings, ListenerList, ToLane } from './messages.ts';
import { announcedEndpoint } from './routes.ts';

const { EACCES, ECONNREFUSED, EADDRNOTAVAIL, EMFILE } = constants.errno;

interface ServerDialerOptions {
  readonly steering: Pick<LaneSteering, 'setTrueClient'>;
  readonly events: ConnectionEvents;
  readonly namespaces: Pick<LaneNamespaces, 'stream'>;
  readonly descriptors: Pick<Descriptors, 'note'>;
  readonly settings: Pick<LaneSettings, 'socketBufferBytes' | 'asksPackets'>;
}

/** A server, where it is dialed from, and what it sees of its client. */
interface Way {
  readonly server: Exclude<Address, { family: 'unix' }>;
  readonly netns: number;
  readonly client: Address;
}

interface Refusal {
  readonly errno: number;
  readonly reason: string;
}

interface Gate {
  readonly server: Way['server'];
  readonly netns: number;
  readonly client: string;
}

export class ServerDialer {
  readonly #options: ServerDialerOptions;
  /** By peer, and then by where from and where to. */
  readonly #gates = new Map<string, Map<string, Gate>>();
  /** The endpoints of servers here that peers may connect to, with their namespaces. */
  #lists: readonly Map<string, number>[] = [];
  /** By peer, its list. */
  #listeners: ReadonlyMap<string, ReadonlyMap<string, number>> = new Map();
  /** By peer, the addresses that its clients may have. */
  readonly #clients = new Map<string, ReadonlySet<string>>();

  constructor(options: ServerDialerOptions) {
    this.#options = options;
  }

  setListeners(lists: readonly ListenerList[]): void {
    this.#lists = lists.map(({ servers }) => new Map(servers.map(({ endpoint, netns }) => [endpoint, netns])));
    const shared = lists.flatMap(({ peers }, index) => peers.map((peer) => [peer, this.#lists[index]] as const));
    this.#listeners = new Map(shared);
  }

  changeListeners({ list, added, removed }: Extract<ToLane, { kind: 'listenersChanged' }>): void {
    const servers = this.#lists[list];
    for (const endpoint of removed) servers?.delete(endpoint);
    for (const { endpoint, netns } of added) servers?.set(endpoint, netns);
  }

  setClients(peer: string, hosts: readonly string[]): void {
    if (hosts.length === 0) this.#clients.delete(peer);
    else this.#clients.set(peer, new Set(hosts));
  }

  /** Also of a peer that is none any more: who opened them closes them. */
  changeGates({ peer, opened, closed }: Omit<Extract<ToLane, { kind: 'gates' }>, 'kind'>): void {
    const gates = this.#gates.get(peer) ?? new Map<string, Gate>();
    for (const { from, to } of closed) gates.delete(`${from} ${to}`);
    for (const { from, to, at, netns, client } of opened) {
      const server = addressOf(at);
      if (server.family !== 'unix') gates.set(`${from} ${to}`, { server, netns, client });
    }
    if (gates.size === 0) this.#gates.delete(peer);
    else this.#gates.set(peer, gates);
  }

  /** The leg to the server, or the errno with which the client is refused. */
  dial(client: Address, original: Address, peer: string): Leg | number {
    const { steering, events, namespaces, descriptors, settings } = this.#options;
    const way = settings.asksPackets ? this.#throughGate(client, original, peer) : this.#open(client, original, peer);
    if ('reason' in way) return this.#refuse({ client, original }, peer, way);
    const info: StreamInfo = { client: way.client, original, isOpener: false, command: '', pid: 0, netns: way.netns };
    let socket: Socket | undefined;
    try {
      socket = namespaces.stream(way.netns, way.server.family);
      if (socket === undefined) {
        return this.#refuse(info, peer, { errno: ECONNREFUSED, reason: 'its network namespace is gone' });
      }
      if (!descriptors.note(socket.fd)) {
        socket.close();
        return this.#refuse(info, peer, { errno: EMFILE, reason: 'few descriptors are left here' });
      }
      prepareLeg(socket, settings.socketBufferBytes);
      // Before the connect: the server may ask for its client as soon as that is on its way.
      steering.setTrueClient(socket, way.client);
      // A server of this host has answered by now, and the second call says so.
      const isConnecting = !socket.connect(way.server) && !socket.connect(way.server);
      events.opened(info, peer);
      return { socket, isConnecting, info };
    } catch (error) {
      socket?.close();
      if (!(error instanceof SystemError)) throw error;
      if (isShortage(error) || error.errno === -EADDRNOTAVAIL) {
        const server = formatAddress(way.server);
        events.error(`connect to ${server} for a client of ${peer}: ${error.message}; the client is reset`);
      }
      return this.#refuse(info, peer, { errno: -error.errno, reason: `connect to the server: ${error.code}` });
    }
  }

  #refuse({ client, original }: Pick<StreamInfo, 'client' | 'original'>, peer: string, refusal: Refusal): number {
    const info: StreamInfo = { client, original, isOpener: false, command: '', pid: 0, netns: 0 };
    this.#options.events.refused(info, peer, refusal.reason);
    return refusal.errno;
  }

  #throughGate(client: Address, original: Address, peer: string): Way | Refusal {
    if (client.family === 'unix' || original.family === 'unix') return noGate;
    const gate = this.#gates.get(peer)?.get(`${client.host} ${announcedEndpoint(original)}`);
    if (gate === undefined) return noGate;
    const { server, netns } = gate;
    return { server, netns, client: gate.client === client.host ? client : ip(gate.client, client.port) };
  }

  #open(client: Address, original: Address, peer: string): Way | Refusal {
    if (original.family === 'unix') return notAnnounced;
    const netns = this.#listeners.get(peer)?.get(announcedEndpoint(original));
    if (netns === undefined) return notAnnounced;
    if (client.family === 'unix' || this.#clients.get(peer)?.has(client.host) !== true) return notItsClient;
    return { server: original, netns, client };
  }
}

const noGate: Refusal = { errno: EACCES, reason: 'no packet of its host has got there lately' };
const notAnnounced: Refusal = { errno: ECONNREFUSED, reason: 'no server of this host that was announced to this peer' };
const notItsClient: Refusal = { errno: EACCES, reason: 'its address is none of that peer’s host' };
