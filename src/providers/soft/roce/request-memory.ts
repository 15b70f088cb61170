// The memory of one request at a time: resolved when the request's turn comes, and again when some
// region was closed.

import type { RegionTable } from '../region.ts';
import type { SendQueue } from '../send-queue.ts';
import { PiecesCursor } from './pieces-cursor.ts';

export class RequestMemory {
  readonly cursor = new PiecesCursor();
  readonly #queue: SendQueue;
  readonly #regions: RegionTable;
  readonly #needed: number;
  #entry = -1;
  #generation = 0;

  /** `needed`: the access that the request's keys must give. */
  constructor(queue: SendQueue, regions: RegionTable, needed: number) {
    this.#queue = queue;
    this.#regions = regions;
    this.#needed = needed;
  }

  /** Makes the cursor that of an entry. False when it names memory that it may not use. */
  resolve(entry: number): boolean {
    const { generation } = this.#regions;
    if (this.#entry === entry && this.#generation === generation) return true;
    this.#generation = generation;
    this.cursor.clear();
    const isFine = this.#queue.resolve(entry, this.#needed, this.cursor.pieces);
    this.#entry = isFine ? entry : -1;
    return isFine;
  }

  /** The entry is about to be used for another request. */
  forget(entry: number): void {
    if (this.#entry === entry) this.#entry = -1;
  }

  clear(): void {
    this.#entry = -1;
  }
}
