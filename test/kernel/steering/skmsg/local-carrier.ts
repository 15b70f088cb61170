// Stands in for a daemon where both ends of a connection are on this host: what one proxy socket
// receives is sent on the other.

import { type Address, FdWatch, formatAddress, SharedMemory } from '../../../../src/native/index.ts';
import type { ProxyConnection, SkmsgPool } from '../../../../src/steering/index.ts';

const CHUNK_BYTES = 65_536;
/** The kernel does not say when a program has read: it is asked again. */
const RETRY_MS = 1;

export class LocalCarrier implements Disposable {
  carriedBytes = 0;
  pairs = 0;
  readonly #waiting = new Map<string, ProxyConnection>();
  readonly #directions = new Set<Direction>();
  readonly #memory = SharedMemory.create({ sizeBytes: CHUNK_BYTES });

  constructor(pool: SkmsgPool) {
    pool.onConnection((connection) => this.#meet(connection));
  }

  /** The two ends name the same addresses, in turned order. */
  #meet(connection: ProxyConnection): void {
    const { local, remote } = connection.spec;
    const partner = this.#waiting.get(key(remote, local));
    if (partner === undefined) {
      this.#waiting.set(key(local, remote), connection);
      return;
    }
    this.#waiting.delete(key(remote, local));
    this.pairs++;
    const directions = [
      new Direction(this, this.#memory, connection, partner),
      new Direction(this, this.#memory, partner, connection),
    ];
    for (const direction of directions) this.#directions.add(direction);
    const gone = new Set<ProxyConnection>();
    for (const one of [connection, partner]) {
      one.onProgramGone = () => {
        gone.add(one);
        if (gone.size < 2) return;
        for (const direction of directions) this.#drop(direction);
        connection.close();
        partner.close();
      };
    }
  }

  #drop(direction: Direction): void {
    direction.stop();
    this.#directions.delete(direction);
  }

  [Symbol.dispose](): void {
    for (const direction of this.#directions) this.#drop(direction);
    this.#memory.close();
  }
}

/** One direction. */
class Direction {
  readonly #carrier: LocalCarrier;
  readonly #memory: SharedMemory;
  readonly #from: ProxyConnection;
  readonly #to: ProxyConnection;
  #watch: FdWatch | null;
  #timer: NodeJS.Timeout | null = null;

  constructor(carrier: LocalCarrier, memory: SharedMemory, from: ProxyConnection, to: ProxyConnection) {
    this.#carrier = carrier;
    this.#memory = memory;
    this.#from = from;
    this.#to = to;
    this.#watch = FdWatch.start(from.fd, () => this.#pump());
  }

  #pump(): void {
    const room = this.#to.roomBytes();
    if (room === 0) {
      this.#pause();
      return;
    }
    const length = this.#from.receive(this.#memory, 0, Math.min(room ?? CHUNK_BYTES, CHUNK_BYTES));
    if (length <= 0) return;
    try {
      for (let sent = 0; sent < length; ) {
        sent += Math.max(0, this.#to.send(this.#memory, sent, length - sent));
      }
    } catch {
      // Its program is gone, and the bytes with it.
    }
    this.#carrier.carriedBytes += length;
    this.#from.delivered(length);
  }

  #pause(): void {
    this.#watch?.close();
    this.#watch = null;
    this.#timer = setTimeout(() => {
      this.#watch = FdWatch.start(this.#from.fd, () => this.#pump());
    }, RETRY_MS);
  }

  stop(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#watch?.close();
    this.#watch = null;
  }
}

function key(local: Address, remote: Address): string {
  return `${formatAddress(local)} ${formatAddress(remote)}`;
}
