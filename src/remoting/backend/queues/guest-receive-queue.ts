// Receives that a guest has posted to a QP or to a shared receive queue: copied out of its ring,
// checked, and posted to the device.

import { loadAcquire, storeRelease } from '../../../native/index.ts';
import { completionRow, type ReceiveBatch, receiveRow } from '../../../verbs/index.ts';
import type { RequestRingShape } from '../../protocol/index.ts';
import { requestRing } from '../../protocol/index.ts';
import { type GuestRequestQueue, POST_ROWS } from './guest-request-queue.ts';
import { checkPostedCount, copyCheckedReceive, type GuestKeys } from './request-check.ts';

interface GuestReceiveQueueOptions {
  readonly tag: number;
  readonly target: { post(batch: ReceiveBatch): number };
  /** The memory of the QP or SRQ, which the guest can write. */
  readonly words: Uint32Array;
  readonly shape: RequestRingShape;
  readonly keys: GuestKeys;
  /** Private rows with room for `shape.maxSge` entries. */
  readonly batch: ReceiveBatch;
}

export class GuestReceiveQueue implements GuestRequestQueue {
  readonly tag: number;
  isBlocked = false;
  readonly #options: GuestReceiveQueueOptions;
  readonly #words: Uint32Array;
  readonly #producedAt: number;
  /**
   * By place. Places are not rows of the ring: receives of a shared queue complete in any order.
   */
  readonly #wrIds: Uint32Array;
  readonly #isUsed: Uint8Array;
  readonly #free: Uint32Array;
  #freeCount = 0;
  /** Receives taken out of the ring, and done, since the queue was made. Modulo 2^32. */
  #taken = 0;
  #completed = 0;

  constructor(options: GuestReceiveQueueOptions) {
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
    // Partner: `RequestRing.publish` of the frontend.
    return !this.isBlocked && loadAcquire(this.#words, this.#producedAt) !== this.#taken;
  }

  pump(): number {
    // Partner: `RequestRing.publish` of the frontend, which stores after it has written the rows.
    const produced = loadAcquire(this.#words, this.#producedAt);
    let waiting = (produced - this.#taken) >>> 0;
    if (waiting === 0) return 0;
    checkPostedCount(waiting, this.#freeCount);
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
    // Partner: `RequestRing.free` of the frontend.
    storeRelease(this.#words, this.#options.shape.at + requestRing.completed, this.#completed);
  }

  reset(): void {
    this.#completed = this.#taken;
    this.isBlocked = false;
    this.#freeAll();
    this.publish();
  }

  /**
   * The row gets the place that is `index` from the end of the free ones; the place is used once
   * the device has taken the row.
   */
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
    copyCheckedReceive(ring, from, words, to, shape.maxSge, keys);
  }

  #freeAll(): void {
    const { requests } = this.#options.shape;
    this.#isUsed.fill(0);
    this.#freeCount = requests;
    for (let index = 0; index < requests; index++) this.#free[index] = index;
  }
}
