// Steering as a lane uses it: its listeners are made known to the kernel, the connections it
// accepts are told apart, and the servers it dials see their true clients.

import { join } from 'node:path';
import { type Address, BpfMap, monotonicNs, type Socket } from '../native/index.ts';
import { addressOf, endpointOf } from './ip-endpoint.ts';
import {
  CONNECTION_BYTES,
  type Connection,
  IP_ENDPOINT_BYTES,
  LANE_MARK_BYTES,
  LANE_PORTS_BYTES,
  type LanePorts,
  readConnection,
  SERVICE_BYTES,
  SERVICE_KEY_BYTES,
  writeIpEndpoint,
  writeLaneMark,
  writeService,
  writeServiceKey,
} from './layouts.ts';
import { folderOf } from './pins.ts';

/** How often a lane renews its deadline, at least. */
export const LANE_BEAT_NS = 125_000_000;
/** What a service has room for: all of struct lane_ports but an address and a count. */
export const LANE_PORTS = LANE_PORTS_BYTES / 4 - 5;
/** A lane that has not renewed its deadline for this long gets no new connections. */
const ALIVE_NS = 500_000_000;

/** As in bpf/steer.bpf.h. */
const LANE_FULL = 1n;

interface AcceptedConnection {
  readonly client: Address;
  readonly original: Address;
  readonly connection: Connection;
}

const laneMaps = ['lane_deadlines', 'services', 'lane_marks', 'sockets', 'true_clients'] as const;
type LaneMap = (typeof laneMaps)[number];

export class LaneSteering implements Disposable {
  readonly #lane: number;
  readonly #maps: Readonly<Record<LaneMap, BpfMap>>;
  readonly #undo: DisposableStack;
  // Filled anew for each call.
  readonly #descriptor = new Int32Array(1);
  readonly #key = new Uint8Array(this.#descriptor.buffer);
  readonly #endpoint = new Uint8Array(IP_ENDPOINT_BYTES);
  readonly #accepted = new Uint8Array(CONNECTION_BYTES);
  readonly #deadline = new BigUint64Array(1);
  readonly #laneKey: Uint8Array;
  readonly #endpointView = new DataView(this.#endpoint.buffer);
  readonly #acceptedView = new DataView(this.#accepted.buffer);
  readonly #deadlineBytes = new Uint8Array(this.#deadline.buffer);

  /** Opens the maps of a pinned instance for one of its lanes. */
  constructor(instance: string, lane: number) {
    using undo = new DisposableStack();
    const open = (name: LaneMap): BpfMap => undo.use(BpfMap.openPinned(join(folderOf(instance), name)));
    this.#lane = lane;
    this.#laneKey = new Uint8Array(new Uint32Array([lane]).buffer);
    this.#maps = {
      lane_deadlines: open('lane_deadlines'),
      services: open('services'),
      lane_marks: open('lane_marks'),
      sockets: open('sockets'),
      true_clients: open('true_clients'),
    };
    this.#undo = undo.move();
  }

  /**
   * Connections of this network namespace may be sent to these listeners of the lane from now on.
   * Those of one address family are at one address, and at most LANE_PORTS.
   */
  serve(netns: number, listeners: readonly Socket[]): void {
    const mark = new Uint8Array(LANE_MARK_BYTES);
    writeLaneMark(new DataView(mark.buffer), 0, { lane: this.#lane, unused: 0 });
    for (const listener of listeners) this.#maps.lane_marks.update(this.#keyOf(listener), mark);
    const addresses = listeners.map(({ localAddress }) => localAddress);
    const portsOf = (family: Address['family']): LanePorts => {
      const endpoints = addresses.filter((address) => address.family === family).map(endpointOf);
      const ports = Array.from({ length: LANE_PORTS }, (_, index) => endpoints[index]?.port ?? 0);
      return { address: endpoints[0]?.address ?? [0, 0, 0, 0], count: Math.min(endpoints.length, LANE_PORTS), ports };
    };
    const service = new Uint8Array(SERVICE_BYTES);
    writeService(new DataView(service.buffer), 0, { ipv4: portsOf('ipv4'), ipv6: portsOf('ipv6') });
    this.#maps.services.update(this.#serviceKey(netns), service);
  }

  /** No connection of this network namespace comes any more. */
  leave(netns: number): void {
    this.#maps.services.delete(this.#serviceKey(netns));
  }

  /** The sign of life: without it, connections are left to plain TCP after half a second. */
  beat(): void {
    this.#deadline[0] = BigInt(Math.round(monotonicNs()) + ALIVE_NS);
    this.#maps.lane_deadlines.update(this.#laneKey, this.#deadlineBytes);
  }

  /** The lane is alive, and takes no more connections: they are left to plain TCP at once. */
  setFull(): void {
    this.#deadline[0] = LANE_FULL;
    this.#maps.lane_deadlines.update(this.#laneKey, this.#deadlineBytes);
  }

  /** What is known of a connection that the lane accepted; undefined for an unsteered one. */
  accepted(socket: Socket): AcceptedConnection | undefined {
    if (!this.#maps.sockets.lookup(this.#keyOf(socket), this.#accepted)) return undefined;
    const connection = readConnection(this.#acceptedView, 0);
    return { client: addressOf(connection.source), original: addressOf(connection.original), connection };
  }

  /** Call it before the socket connects to a server: the server is to see `client`. */
  setTrueClient(socket: Socket, client: Address): void {
    writeIpEndpoint(this.#endpointView, 0, endpointOf(client));
    this.#maps.true_clients.update(this.#keyOf(socket), this.#endpoint);
  }

  close(): void {
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Maps of sockets are keyed by descriptor. */
  #keyOf(socket: Socket): Uint8Array {
    this.#descriptor[0] = socket.fd;
    return this.#key;
  }

  #serviceKey(netns: number): Uint8Array {
    const key = new Uint8Array(SERVICE_KEY_BYTES);
    writeServiceKey(new DataView(key.buffer), 0, { netns, lane: this.#lane, unused: 0 });
    return key;
  }
}
