// The send queue of a guest's QP: rows are copied out of the guest's ring, checked, and posted to
// the device's QP.

import { loadAcquire, storeRelease } from '../../../native/index.ts';
import { completionRow, type Qp, type SendBatch, sendFlags, sendRow } from '../../../verbs/index.ts';
import type { RequestRingShape } from '../../protocol/index.ts';
import { requestRing } from '../../protocol/index.ts';
import { type GuestRequestQueue, POST_ROWS } from './guest-request-queue.ts';
import { checkPostedCount, copyCheckedSend, type SendLimits } from './request-check.ts';

export interface GuestSendQueueOptions {
  readonly tag: number;
  readonly qp: Qp;
  /** The QP's memory, which the guest can write. */
  readonly words: Uint32Array;
  readonly shape: RequestRingShape;
  readonly limits: SendLimits;
  readonly signalAll: boolean;
  /** Private rows with room for `shape.maxSge` entries. */
  readonly batch: SendBatch;
  /**
   * The device refused a request when it was posted, so the QP cannot go on. `wrIds` are the
   * guest's ids of all requests under way, low and high word in turn.
   */
  readonly onRefused: (error: unknown, wrIds: readonly number[]) => void;
}

export class GuestSendQueue implements GuestRequestQueue {
  readonly tag: number;
  isBlocked = false;
  readonly #options: GuestSendQueueOptions;
  readonly #words: Uint32Array;
  readonly #mask: number;
  readonly #rowsAt: number;
  readonly #producedAt: number;
  /** By place: the guest's id, and whether it gets a completion if the request succeeds. */
  readonly #wrIds: Uint32Array;
  readonly #isWanted: Uint8Array;
  /** Unsignalled requests in a row, so far. */
  #unsignalled = 0;
  /** Requests seen in the ring, taken out of it, and done, since the QP was made. Modulo 2^32. */
  #produced = 0;
  #taken = 0;
  #completed = 0;

  constructor(options: GuestSendQueueOptions) {
    const { shape } = options;
    this.tag = options.tag;
    this.#options = options;
    this.#words = options.words;
    this.#mask = shape.slots - 1;
    this.#rowsAt = shape.at + requestRing.rows;
    this.#producedAt = shape.at + requestRing.produced;
    this.#wrIds = new Uint32Array(shape.slots * 2);
    this.#isWanted = new Uint8Array(shape.slots);
  }

  get hasWork(): boolean {
    // Partner: `RequestRing.publish` of the frontend.
    return !this.isBlocked && loadAcquire(this.#words, this.#producedAt) !== this.#taken;
  }

  /**
   * `pump` takes what was posted by now. Receives that the guest posted before these sends are
   * taken in between.
   */
  readProduced(): void {
    // Partner: `RequestRing.publish` of the frontend, which stores after it has written the rows.
    this.#produced = loadAcquire(this.#words, this.#producedAt);
  }

  pump(): number {
    let waiting = (this.#produced - this.#taken) >>> 0;
    if (waiting === 0) return 0;
    checkPostedCount(waiting, this.#options.shape.requests - ((this.#taken - this.#completed) >>> 0));
    const { batch, qp } = this.#options;
    let done = 0;
    while (waiting > 0) {
      const count = Math.min(waiting, POST_ROWS);
      batch.clear();
      for (let index = 0; index < count; index++) this.#copyRow((this.#taken + index) >>> 0);
      let took = 0;
      try {
        took = qp.postSend(batch);
      } catch (error) {
        this.#refuse(error, count);
        return done;
      }
      this.#taken = (this.#taken + took) >>> 0;
      done += took;
      waiting -= took;
      this.isBlocked = took < count;
      if (this.isBlocked) break;
    }
    return done;
  }

  complete(place: number, row: Uint32Array, at: number): boolean {
    const outstanding = (this.#taken - this.#completed) >>> 0;
    if ((place - this.#completed) >>> 0 >= outstanding) return false;
    // Requests complete in order: unsignalled ones that were posted before this one are done as
    // well.
    this.#completed = (place + 1) >>> 0;
    this.isBlocked = false;
    const slot = place & this.#mask;
    row[at + completionRow.wrId] = this.#wrIds[slot * 2];
    row[at + completionRow.wrId + 1] = this.#wrIds[slot * 2 + 1];
    return row[at + completionRow.status] !== 0 || this.#isWanted[slot] === 1;
  }

  publish(): void {
    // Partner: `RequestRing.free` of the frontend.
    storeRelease(this.#words, this.#options.shape.at + requestRing.completed, this.#completed);
  }

  reset(): void {
    this.#completed = this.#taken;
    this.isBlocked = false;
    this.#unsignalled = 0;
    this.publish();
  }

  /**
   * The device does not say how many of the batch it took, so all requests under way are given up.
   */
  #refuse(error: unknown, count: number): void {
    const wrIds: number[] = [];
    const end = (this.#taken + count) >>> 0;
    for (let place = this.#completed; place !== end; place = (place + 1) >>> 0) {
      const at = (place & this.#mask) * 2;
      wrIds.push(this.#wrIds[at], this.#wrIds[at + 1]);
    }
    this.#taken = end;
    this.reset();
    this.#options.onRefused(error, wrIds);
  }

  #copyRow(place: number): void {
    const { batch, shape, limits, signalAll } = this.#options;
    const slot = place & this.#mask;
    const to = batch.count * batch.rowWords;
    batch.send(0);
    const { words } = batch;
    copyCheckedSend(this.#words, this.#rowsAt + slot * shape.rowWords, words, to, slot, limits);
    this.#wrIds[slot * 2] = words[to + sendRow.wrId];
    this.#wrIds[slot * 2 + 1] = words[to + sendRow.wrId + 1];
    words[to + sendRow.wrId] = place;
    words[to + sendRow.wrId + 1] = this.tag;
    const isSignaled = signalAll || (words[to + sendRow.flags] & sendFlags.signaled) !== 0;
    this.#isWanted[slot] = isSignaled ? 1 : 0;
    this.#signalSometimes(to, isSignaled);
  }

  /**
   * A queue whose requests are all unsignalled would never tell that it has room again. So one in
   * half a queue is signalled natively, and its completion is kept from the guest.
   */
  #signalSometimes(to: number, isSignaled: boolean): void {
    this.#unsignalled = isSignaled ? 0 : this.#unsignalled + 1;
    if (this.#unsignalled * 2 < this.#options.shape.requests) return;
    this.#unsignalled = 0;
    this.#options.batch.words[to + sendRow.flags] |= sendFlags.signaled;
  }
}
