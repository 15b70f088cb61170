// The two maps that a daemon uses for each connection: where a steered one was meant to go, and
// which client a server is to see.

import { join } from 'node:path';
import { type Address, BpfMap } from '../native/index.ts';
import { addressOf, endpointOf } from './ip-endpoint.ts';
import { CONNECTION_BYTES, type Connection, IP_ENDPOINT_BYTES, readConnection, writeIpEndpoint } from './layouts.ts';
import { folderOf } from './pins.ts';

export interface TakenConnection {
  readonly original: Address;
  readonly connection: Connection;
}

export class ConnectionMaps implements Disposable {
  readonly #steered: BpfMap;
  readonly #trueClients: BpfMap;
  // Filled anew for each lookup.
  readonly #key = new Uint8Array(IP_ENDPOINT_BYTES);
  readonly #client = new Uint8Array(IP_ENDPOINT_BYTES);
  readonly #taken = new Uint8Array(CONNECTION_BYTES);
  readonly #keyView = new DataView(this.#key.buffer);
  readonly #clientView = new DataView(this.#client.buffer);
  readonly #takenView = new DataView(this.#taken.buffer);

  /** Opens the maps of a pinned instance, for threads other than the one that made it. */
  static open(instance: string): ConnectionMaps {
    using undo = new DisposableStack();
    const open = (name: string): BpfMap => undo.use(BpfMap.openPinned(join(folderOf(instance), name)));
    const maps = new ConnectionMaps(open('steered'), open('true_clients'));
    undo.move();
    return maps;
  }

  constructor(steered: BpfMap, trueClients: BpfMap) {
    this.#steered = steered;
    this.#trueClients = trueClients;
  }

  /** Takes what is known of a connection that was just accepted; undefined for an unsteered one. */
  take(client: Address): TakenConnection | undefined {
    writeIpEndpoint(this.#keyView, 0, endpointOf(client));
    if (!this.#steered.lookup(this.#key, this.#taken)) return undefined;
    this.#steered.delete(this.#key);
    const connection = readConnection(this.#takenView, 0);
    return { original: addressOf(connection.original), connection };
  }

  /** Call it before connecting to a server from `local`: the server is to see `client`. */
  setTrueClient(local: Address, client: Address): void {
    writeIpEndpoint(this.#keyView, 0, endpointOf(local));
    writeIpEndpoint(this.#clientView, 0, endpointOf(client));
    this.#trueClients.update(this.#key, this.#client);
  }

  forgetTrueClient(local: Address): void {
    writeIpEndpoint(this.#keyView, 0, endpointOf(local));
    this.#trueClients.delete(this.#key);
  }

  close(): void {
    this.#steered.close();
    this.#trueClients.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
