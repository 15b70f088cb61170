// The pump of a lane: the memory its connections share, their totals, and the last words of those that were reset.

import { BufferPool, type EventLoop, LastWords, type PooledBuffer } from '../loop/index.ts';
import type { Socket } from '../native/index.ts';
import { CarriedConnection, type ConnectionEnd } from './carried-connection.ts';

export interface PumpTotals {
  bytesToServer: number;
  bytesToClient: number;
}

export interface PumpOptions {
  /** How much is received at once, and what a direction holds while its receiver is slow. */
  readonly bufferBytes?: number;
}

export class Pump implements Disposable {
  readonly lane: EventLoop;
  readonly pool: BufferPool;
  readonly totals: PumpTotals = { bytesToServer: 0, bytesToClient: 0 };
  /** Where bytes are received first. It stays with a connection when they cannot be sent at once. */
  scratch: PooledBuffer;
  readonly #connections = new Set<CarriedConnection>();
  readonly lastWords: LastWords;

  constructor(lane: EventLoop, options: PumpOptions = {}) {
    this.lane = lane;
    this.pool = new BufferPool(options.bufferBytes);
    this.scratch = this.pool.take();
    this.lastWords = new LastWords(lane);
  }

  get connections(): ReadonlySet<CarriedConnection> {
    return this.#connections;
  }

  /** Takes both sockets over, also when it throws. `isConnecting`: the server's connect is still under way. */
  carry(client: Socket, server: Socket, isConnecting: boolean, onEnd: (end: ConnectionEnd) => void): CarriedConnection {
    const connection = new CarriedConnection(this, client, server, isConnecting, (end) => {
      this.#connections.delete(connection);
      onEnd(end);
    });
    this.#connections.add(connection);
    return connection;
  }

  /** Keeps the scratch buffer for somebody's bytes. */
  keepScratch(): PooledBuffer {
    const kept = this.scratch;
    this.scratch = this.pool.take();
    return kept;
  }

  /** Resets what is still open. */
  close(): void {
    for (const connection of this.#connections) connection.abort();
    this.lastWords.close();
    this.pool.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
