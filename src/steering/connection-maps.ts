// The two maps that a daemon reads and writes for each connection: who came, and whom a server is to see.

import { join } from 'node:path';
import { type Address, BpfMap } from '../native/index.ts';
import { addressOf, endpointOf } from './endpoint.ts';
import { CONNECTION_BYTES, type Connection, IP_ENDPOINT_BYTES, readConnection, writeIpEndpoint } from './layouts.ts';
import { folderOf } from './pins.ts';

export interface TakenConnection {
  readonly original: Address;
  readonly connection: Connection;
}

export class ConnectionMaps implements Disposable {
  readonly #steered: BpfMap;
  readonly #callers: BpfMap;
  // Filled for each call, and kept by nobody.
  readonly #key = new Uint8Array(IP_ENDPOINT_BYTES);
  readonly #client = new Uint8Array(IP_ENDPOINT_BYTES);
  readonly #taken = new Uint8Array(CONNECTION_BYTES);
  readonly #keyView = new DataView(this.#key.buffer);
  readonly #clientView = new DataView(this.#client.buffer);
  readonly #takenView = new DataView(this.#taken.buffer);

  /** Of an instance that is pinned: for threads other than the one that made it. */
  static open(instance: string): ConnectionMaps {
    using undo = new DisposableStack();
    const open = (name: string): BpfMap => undo.use(BpfMap.openPinned(join(folderOf(instance), name)));
    const maps = new ConnectionMaps(open('steered'), open('callers'));
    undo.move();
    return maps;
  }

  constructor(steered: BpfMap, callers: BpfMap) {
    this.#steered = steered;
    this.#callers = callers;
  }

  /** What a connection that was just accepted is about; undefined when it was not steered here. Only once. */
  take(client: Address): TakenConnection | undefined {
    writeIpEndpoint(this.#keyView, 0, endpointOf(client));
    if (!this.#steered.lookup(this.#key, this.#taken)) return undefined;
    this.#steered.delete(this.#key);
    const connection = readConnection(this.#takenView, 0);
    return { original: addressOf(connection.original), connection };
  }

  /** Before calling a server from `local`: whom the server shall see. */
  setTrueClient(local: Address, client: Address): void {
    writeIpEndpoint(this.#keyView, 0, endpointOf(local));
    writeIpEndpoint(this.#clientView, 0, endpointOf(client));
    this.#callers.update(this.#key, this.#client);
  }

  forgetTrueClient(local: Address): void {
    writeIpEndpoint(this.#keyView, 0, endpointOf(local));
    this.#callers.delete(this.#key);
  }

  close(): void {
    this.#steered.close();
    this.#callers.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
