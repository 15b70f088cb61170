// A completion queue of a guest: completions of the device get the guest's work request ids and go
// into the guest's ring.

import { loadAcquire, storeRelease } from '../../../native/index.ts';
import type { SessionCounts } from '../../../status/index.ts';
import { CompletionBatch, type Cq, completionFlags, completionRow } from '../../../verbs/index.ts';
import type { CompletionRingShape, HostMemory } from '../../protocol/index.ts';
import { armings, completionRing } from '../../protocol/index.ts';
import type { GuestRequestQueue } from './guest-request-queue.ts';
import { checkUnreadCount } from './request-check.ts';
import type { TagTable } from './tag-table.ts';

const ROW = completionRow.words;
const POLL_ROWS = 64;

interface GuestCompletionQueueOptions {
  readonly cq: Cq;
  readonly memory: HostMemory;
  readonly shape: CompletionRingShape;
  readonly tags: TagTable;
  /** Completions given to the guest are counted here. */
  readonly counts: Pick<SessionCounts, 'completions' | 'failedCompletions'>;
  /** Whether native completions say that they were solicited; if not, all count as such. */
  readonly marksSolicited: boolean;
  /** Rings the guest for an event that it has armed the queue for. */
  readonly onEvent: () => void;
  /** Rings a guest that naps between its polls. */
  readonly onNap: () => void;
}

export class GuestCompletionQueue implements Disposable {
  readonly cq: Cq;
  readonly #options: GuestCompletionQueueOptions;
  readonly #words: Uint32Array;
  readonly #batch: CompletionBatch;
  readonly #mask: number;
  /** Completions that found the ring full, as flat rows. They have the guest's ids already. */
  #held: number[] = [];
  #produced = 0;
  /** As it was last loaded. */
  #consumed = 0;
  /** Whether a guest that waits for solicited completions is due an event. */
  #isSolicited = false;

  constructor(options: GuestCompletionQueueOptions) {
    const { memory, shape } = options;
    this.cq = options.cq;
    this.#options = options;
    this.#words = new Uint32Array(memory.memory.buffer, memory.offset, shape.sizeBytes / 4);
    this.#mask = shape.slots - 1;
    this.#batch = new CompletionBatch(Math.min(POLL_ROWS, shape.entries));
  }

  /**
   * Moves the completions that are there and fit; returns how many. Throws on a protocol error of
   * the guest.
   */
  pump(): number {
    let room = this.#room();
    let moved = 0;
    if (room > 0 && this.#held.length > 0) {
      const count = Math.min(room, this.#held.length / ROW);
      for (let index = 0; index < count; index++) this.#push(this.#held, index * ROW);
      this.#held.splice(0, count * ROW);
      moved += count;
      room -= count;
    }
    // One batch a turn, so that other queues have their turn.
    if (room > 0) moved += this.#take(room);
    if (moved > 0) this.#publish();
    return moved;
  }

  /**
   * All completions of the device get the guest's ids now, because the queues that they belong to
   * are about to change.
   */
  drain(): void {
    while (this.#take(this.#held.length > 0 ? 0 : this.#room()) > 0);
    this.#publish();
  }

  /** Adds a completion that no device gave, after all that are there. */
  inject(wrIdLow: number, wrIdHigh: number, status: number, qpNumber: number): void {
    const row = Array.from({ length: ROW }, () => 0);
    row[completionRow.wrId] = wrIdLow;
    row[completionRow.wrId + 1] = wrIdHigh;
    row[completionRow.status] = status;
    row[completionRow.qpNumber] = qpNumber;
    this.#held.push(...row);
  }

  /** Arms the device's queue. True when completions were there already. */
  prepareSleep(): boolean {
    this.cq.arm();
    return this.pump() > 0;
  }

  close(): void {
    this.#batch.close();
    this.#options.memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** Polls the device once; returns how many completions it gave. */
  #take(room: number): number {
    const count = this.cq.poll(this.#batch);
    const { words } = this.#batch;
    let queue: GuestRequestQueue | undefined;
    let left = room;
    for (let index = 0; index < count; index++) {
      const at = index * ROW;
      const tag = words[at + completionRow.wrId + 1];
      if (queue?.tag !== tag) {
        queue?.publish();
        queue = this.#options.tags.find(tag);
      }
      if (queue === undefined || !queue.complete(words[at + completionRow.wrId], words, at)) continue;
      if (left > 0) {
        this.#push(words, at);
        left--;
      } else {
        for (let word = 0; word < ROW; word++) this.#held.push(words[at + word]);
      }
    }
    queue?.publish();
    return count;
  }

  #push(from: ArrayLike<number>, at: number): void {
    const to = completionRing.rows + (this.#produced & this.#mask) * ROW;
    const words = this.#words;
    for (let word = 0; word < ROW; word++) words[to + word] = from[at + word];
    this.#produced = (this.#produced + 1) >>> 0;
    this.#options.counts.completions++;
    const isFailed = from[at + completionRow.status] !== 0;
    if (isFailed) this.#options.counts.failedCompletions++;
    const isMarked = (from[at + completionRow.flags] & completionFlags.solicited) !== 0;
    if (isFailed || isMarked || !this.#options.marksSolicited) this.#isSolicited = true;
  }

  #publish(): void {
    const words = this.#words;
    // Written by this side alone.
    if (loadAcquire(words, completionRing.produced) === this.#produced) return;
    // Partners: `RemoteCq.poll` before it reads rows; `RemoteCq.arm` and `RemoteCq.#nap`, whose
    // threads store a flag and then load this word.
    storeRelease(words, completionRing.produced, this.#produced);
    // Partner: the store of `RemoteCq.arm`.
    const armed = loadAcquire(words, completionRing.armed);
    if (armed === armings.any || (armed !== armings.none && this.#isSolicited)) {
      // Partner: the load of `RemoteCq.notify`.
      storeRelease(words, completionRing.armed, armings.none);
      this.#options.onEvent();
    }
    // Partner: `RemoteCq.#nap`, which stores that it naps and then loads `produced`.
    if (loadAcquire(words, completionRing.naps) !== 0) {
      storeRelease(words, completionRing.naps, 0);
      this.#options.onNap();
    }
    this.#isSolicited = false;
  }

  #room(): number {
    const { entries } = this.#options.shape;
    // `consumed` is loaded only when it matters, so that the guest's store does not wait for this
    // processor's copy of the word.
    const room = entries - ((this.#produced - this.#consumed) >>> 0);
    if (room >= this.#batch.capacity) return room;
    const found = this.#freeEntries();
    if (found > 0) return found;
    // Stores that it wants room, then loads again. Partner: `RemoteCq.poll`, which stores
    // `consumed` and then loads this word.
    storeRelease(this.#words, completionRing.wantsRoom, 1);
    return this.#freeEntries();
  }

  #freeEntries(): number {
    const { entries } = this.#options.shape;
    // Partner: the store of `RemoteCq.poll`.
    this.#consumed = loadAcquire(this.#words, completionRing.consumed);
    const unread = (this.#produced - this.#consumed) >>> 0;
    checkUnreadCount(unread, entries);
    return entries - unread;
  }
}
