// The pump of a lane: the memory its connections share, their totals, and patience with those that were reset.

import { BufferPool, type Lane, type PooledBuffer, type Watched } from '../lane/index.ts';
import { pollEvents, type Socket, TimerFd } from '../native/index.ts';
import { CarriedConnection, type ConnectionEnd } from './carried-connection.ts';

/** How often a connection that was reset is looked at, and how often without progress until the rest is dropped. */
const LOOK_NS = 5_000_000;
const PATIENCE_LOOKS = 20;

export interface PumpTotals {
  bytesToServer: number;
  bytesToClient: number;
}

export interface PumpOptions {
  /** How much is received at once, and what a direction holds while its receiver is slow. */
  readonly bufferBytes?: number;
}

export class Pump implements Watched, Disposable {
  readonly lane: Lane;
  readonly pool: BufferPool;
  readonly totals: PumpTotals = { bytesToServer: 0, bytesToClient: 0 };
  /** Where bytes are received first. It stays with a connection when they cannot be sent at once. */
  scratch: PooledBuffer;
  readonly #connections = new Set<CarriedConnection>();
  readonly #dying = new Set<CarriedConnection>();
  readonly #timer = TimerFd.create();
  readonly #timerToken: number;

  constructor(lane: Lane, options: PumpOptions = {}) {
    this.lane = lane;
    this.pool = new BufferPool(options.bufferBytes);
    this.scratch = this.pool.take();
    this.#timerToken = lane.watch(this.#timer.fd, pollEvents.in, this);
  }

  get connections(): ReadonlySet<CarriedConnection> {
    return this.#connections;
  }

  /** Takes both sockets over, also when it throws. `isConnecting`: the server's connect is still under way. */
  carry(client: Socket, server: Socket, isConnecting: boolean, onEnd: (end: ConnectionEnd) => void): CarriedConnection {
    const connection = new CarriedConnection(this, client, server, isConnecting, (end) => {
      this.#connections.delete(connection);
      this.#dying.delete(connection);
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

  /** One leg was reset, and what came before the reset is still on its way to the other: look after it. */
  lookAfter(connection: CarriedConnection): void {
    if (this.#dying.has(connection)) return;
    if (this.#dying.size === 0) this.#timer.set(LOOK_NS, LOOK_NS);
    this.#dying.add(connection);
  }

  onEvents(): void {
    this.#timer.take();
    for (const connection of this.#dying) connection.look(PATIENCE_LOOKS);
    if (this.#dying.size === 0) this.#timer.set(0);
  }

  /** Resets what is still open. */
  close(): void {
    if (this.#timer.isClosed) return;
    for (const connection of this.#connections) connection.abort();
    this.lane.unwatch(this.#timer.fd, this.#timerToken);
    this.#timer.close();
    this.pool.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
