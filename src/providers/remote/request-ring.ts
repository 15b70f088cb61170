// The guest's end of a ring of requests: rows are copied in, one store publishes them, and a place
// is free when its request is done.

import { loadAcquire, type SharedMemory, storeRelease } from '../../native/index.ts';
import type { RequestRingShape } from '../../remoting/protocol/index.ts';
import { requestRing } from '../../remoting/protocol/index.ts';

export class RequestRing {
  readonly memory: SharedMemory;
  readonly words: Uint32Array;
  readonly #shape: RequestRingShape;
  readonly #rowsAt: number;
  readonly #wakeBackend: () => void;
  #produced = 0;
  /** As it was last loaded. */
  #completed = 0;

  constructor(memory: SharedMemory, shape: RequestRingShape, wakeBackend: () => void) {
    this.#wakeBackend = wakeBackend;
    this.memory = memory;
    this.words = new Uint32Array(memory.buffer);
    this.#shape = shape;
    this.#rowsAt = shape.at + requestRing.rows;
  }

  get maxSge(): number {
    return this.#shape.maxSge;
  }

  /** Places for new requests: at least `wanted`, or all there are. */
  free(wanted: number): number {
    const free = this.#shape.requests - ((this.#produced - this.#completed) >>> 0);
    if (free >= wanted) return free;
    // Loaded only when it matters, so that the backend's store does not wait for this processor's
    // copy of the word. Partner: `publish` of the guest's queues at the backend.
    this.#completed = loadAcquire(this.words, this.#shape.at + requestRing.completed);
    return this.#shape.requests - ((this.#produced - this.#completed) >>> 0);
  }

  /** The row of the request that is `ahead` of those published. */
  slot(ahead: number): number {
    return (this.#produced + ahead) & (this.#shape.slots - 1);
  }

  /** The first word of a row. */
  row(slot: number): number {
    return this.#rowsAt + slot * this.#shape.rowWords;
  }

  publish(count: number): void {
    this.#produced = (this.#produced + count) >>> 0;
    // Partner: the loads of the guest's queues at the backend, which then copy the rows.
    storeRelease(this.words, this.#shape.at + requestRing.produced, this.#produced);
    this.#wakeBackend();
  }

  /**
   * Calls back with the first word of every request that is not done, oldest first, and drops them.
   * The backend is gone, so nobody else writes the ring.
   */
  abandon(onRow: (row: number) => void): void {
    const completed = loadAcquire(this.words, this.#shape.at + requestRing.completed);
    const count = (this.#produced - completed) >>> 0;
    for (let index = 0; index < count; index++) onRow(this.row((completed + index) & (this.#shape.slots - 1)));
    storeRelease(this.words, this.#shape.at + requestRing.completed, this.#produced);
  }
}
