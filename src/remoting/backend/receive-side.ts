// Receives that a guest has posted, to a QP or to a shared receive queue, as its backend has them.

import { completionRow, type ReceiveBatch, receiveRow, sgeRow } from '../../verbs/index.ts';
import type { RequestRingShape } from '../protocol/index.ts';
import { requestRing } from '../protocol/index.ts';
import { type GuestKeys, overfull, POST_ROWS, type PostedQueue } from './posted-queue.ts';

export interface ReceiveSideOptions {
  readonly tag: number;
  readonly target: { post(batch: ReceiveBatch): number };
  readonly words: Uint32Array;
  readonly shape: RequestRingShape;
  readonly keys: GuestKeys;
  /** Private rows with room for `shape.maxSge` entries. */
  readonly batch: ReceiveBatch;
}

export class ReceiveSide implements PostedQueue {
  readonly tag: number;
  isBlocked = false;
  readonly #options: ReceiveSideOptions;
  readonly #words: Uint32Array;
  readonly #producedAt: number;
  /** By place. Places are not rows of the ring: receives of a shared queue complete in any order. */
  readonly #wrIds: Uint32Array;
  readonly #isUsed: Uint8Array;
  readonly #free: Uint32Array;
  #freeCount = 0;
  #taken = 0;
  #completed = 0;

  constructor(options: ReceiveSideOptions) {
    const { shape } = options;
    this.tag = options.tag;
    this.#options = options;
    this.#words = options.words;
    this.#producedAt = shape.at + requestRing.produced;
    this.#wrIds = new Uint32Array(shape.requests * 2);
    this.#isUsed = new Uint8Array(shape.requests);
    this.#free = new Uint32Array(shape.requests);
    this.#freeAll();
  }

  get hasWork(): boolean {
    return !this.isBlocked && Atomics.load(this.#words, this.#producedAt) !== this.#taken;
  }

  pump(): number {
    // Partner: the frontend's store after it has written the rows.
    const produced = Atomics.load(this.#words, this.#producedAt);
    let waiting = (produced - this.#taken) >>> 0;
    if (waiting === 0) return 0;
    if (waiting > this.#freeCount) throw overfull(waiting, this.#freeCount);
    const { batch, target } = this.#options;
    let done = 0;
    while (waiting > 0) {
      const count = Math.min(waiting, POST_ROWS);
      batch.clear();
      for (let index = 0; index < count; index++) this.#copyRow((this.#taken + index) >>> 0, index);
      const took = target.post(batch);
      for (let index = 0; index < took; index++) this.#isUsed[this.#free[this.#freeCount - 1 - index]] = 1;
      this.#freeCount -= took;
      this.#taken = (this.#taken + took) >>> 0;
      done += took;
      waiting -= took;
      this.isBlocked = took < count;
      if (this.isBlocked) break;
    }
    return done;
  }

  complete(place: number, row: Uint32Array, at: number): boolean {
    if (place >= this.#isUsed.length || this.#isUsed[place] === 0) return false;
    this.#isUsed[place] = 0;
    this.#free[this.#freeCount++] = place;
    this.#completed = (this.#completed + 1) >>> 0;
    this.isBlocked = false;
    row[at + completionRow.wrId] = this.#wrIds[place * 2];
    row[at + completionRow.wrId + 1] = this.#wrIds[place * 2 + 1];
    return true;
  }

  publish(): void {
    // Partner: the frontend's load when it looks for room.
    Atomics.store(this.#words, this.#options.shape.at + requestRing.completed, this.#completed);
  }

  reset(): void {
    this.#completed = this.#taken;
    this.isBlocked = false;
    this.#freeAll();
    this.publish();
  }

  /** Gets the place that is `index` from the end of the free ones; it is taken when the device has taken the row. */
  #copyRow(ringPlace: number, index: number): void {
    const { batch, shape, keys } = this.#options;
    const from = shape.at + requestRing.rows + (ringPlace & (shape.slots - 1)) * shape.rowWords;
    const place = this.#free[this.#freeCount - 1 - index];
    const to = batch.count * batch.rowWords;
    batch.receive(0);
    const { words } = batch;
    const ring = this.#words;
    this.#wrIds[place * 2] = ring[from + receiveRow.wrId];
    this.#wrIds[place * 2 + 1] = ring[from + receiveRow.wrId + 1];
    words[to + receiveRow.wrId] = place;
    words[to + receiveRow.wrId + 1] = this.tag;
    // What no frontend writes is cut to what there is; a key of nobody makes it fail.
    const sges = Math.min(ring[from + receiveRow.sgeCount], shape.maxSge);
    words[to + receiveRow.sgeCount] = sges;
    const used = receiveRow.sge + sges * sgeRow.words;
    for (let word = receiveRow.sge; word < used; word++) words[to + word] = ring[from + word];
    for (let sge = 0; sge < sges; sge++) {
      const at = to + receiveRow.sge + sge * sgeRow.words + sgeRow.lkey;
      if (!keys.lkeys.has(words[at])) words[at] = 0;
    }
  }

  #freeAll(): void {
    const { requests } = this.#options.shape;
    this.#isUsed.fill(0);
    this.#freeCount = requests;
    for (let index = 0; index < requests; index++) this.#free[index] = index;
  }
}
