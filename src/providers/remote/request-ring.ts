// The guest's end of a ring of requests: rows are copied in, one store tells of them, and a place is free when its request is done.

import type { SharedMemory } from '../../native/index.ts';
import type { RequestRingShape } from '../../remoting/protocol/index.ts';
import { requestRing } from '../../remoting/protocol/index.ts';

export class RequestRing {
  readonly memory: SharedMemory;
  readonly words: Uint32Array;
  readonly #shape: RequestRingShape;
  readonly #rowsAt: number;
  readonly #wakeBackend: () => void;
  #produced = 0;
  /** As it was last seen. */
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
    // Looked at only when it matters, so that the backend's store does not wait for this processor's copy of the word.
    // Partner: the backend's store when requests are done.
    this.#completed = Atomics.load(this.words, this.#shape.at + requestRing.completed);
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
    // Partner: the backend's load, which then copies the rows.
    Atomics.store(this.words, this.#shape.at + requestRing.produced, this.#produced);
    this.#wakeBackend();
  }

  /** Calls back with the first word of every request that is not done, oldest first, and forgets them. */
  abandon(onRow: (row: number) => void): void {
    const completed = Atomics.load(this.words, this.#shape.at + requestRing.completed);
    const count = (this.#produced - completed) >>> 0;
    for (let index = 0; index < count; index++) onRow(this.row((completed + index) & (this.#shape.slots - 1)));
    Atomics.store(this.words, this.#shape.at + requestRing.completed, this.#produced);
  }
}
