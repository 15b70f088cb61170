// A completion queue of a guest, as its backend has it: native completions get the guest's ids and go into its ring.

import { MillraceError } from '../../errors.ts';
import { CompletionBatch, type Cq, completionFlags, completionRow } from '../../verbs/index.ts';
import type { CompletionRingShape, HostMemory } from '../protocol/index.ts';
import { armings, completionRing } from '../protocol/index.ts';
import type { PostedQueue } from './posted-queue.ts';
import type { TagTable } from './tag-table.ts';

const ROW = completionRow.words;
const POLL_ROWS = 64;

export interface CompletionSideOptions {
  readonly cq: Cq;
  readonly memory: HostMemory;
  readonly shape: CompletionRingShape;
  readonly tags: TagTable;
  /** Whether native completions say that they were solicited; if not, all count as such. */
  readonly marksSolicited: boolean;
  /** Tells the guest of an event that it has asked for. */
  readonly onEvent: () => void;
  /** Wakes a guest that polls. */
  readonly onNap: () => void;
}

export class CompletionSide implements Disposable {
  readonly cq: Cq;
  readonly #options: CompletionSideOptions;
  readonly #words: Uint32Array;
  readonly #batch: CompletionBatch;
  readonly #mask: number;
  /** Completions that found the ring full: their ids are the guest's already. Flat rows. */
  #held: number[] = [];
  #produced = 0;
  /** As it was last seen. */
  #consumed = 0;
  /** Whether an event is due to one who waits for solicited completions. */
  #isSolicited = false;
  completions = 0;
  events = 0;
  failures = 0;

  constructor(options: CompletionSideOptions) {
    const { memory, shape } = options;
    this.cq = options.cq;
    this.#options = options;
    this.#words = new Uint32Array(memory.memory.buffer, memory.offset, shape.sizeBytes / 4);
    this.#mask = shape.slots - 1;
    this.#batch = new CompletionBatch(Math.min(POLL_ROWS, shape.entries));
  }

  /** Moves what is there and fits; returns how many. Throws when the guest has broken the rules. */
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
    // One batch a turn: others have something to do, too.
    if (room > 0) moved += this.#take(room);
    if (moved > 0) this.#publish();
    return moved;
  }

  /** Everything that is there natively gets its ids now, because the queues they are of are about to change. */
  drain(): void {
    while (this.#take(this.#held.length > 0 ? 0 : this.#room()) > 0);
    this.#publish();
  }

  /** A completion that no device gave. It comes after all that are there. */
  inject(wrIdLow: number, wrIdHigh: number, status: number, qpNumber: number): void {
    const row = Array.from({ length: ROW }, () => 0);
    row[completionRow.wrId] = wrIdLow;
    row[completionRow.wrId + 1] = wrIdHigh;
    row[completionRow.status] = status;
    row[completionRow.qpNumber] = qpNumber;
    this.#held.push(...row);
  }

  /** Asks for a native event, and says whether there is something already. */
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

  /** How many were polled natively. */
  #take(room: number): number {
    const count = this.cq.poll(this.#batch);
    const { words } = this.#batch;
    let queue: PostedQueue | undefined;
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
    this.completions++;
    const isFailed = from[at + completionRow.status] !== 0;
    if (isFailed) this.failures++;
    const isMarked = (from[at + completionRow.flags] & completionFlags.solicited) !== 0;
    if (isFailed || isMarked || !this.#options.marksSolicited) this.#isSolicited = true;
  }

  #publish(): void {
    const words = this.#words;
    if (Atomics.load(words, completionRing.produced) === this.#produced) return;
    // Partner: the frontend's load before it reads rows, and its load after it has armed.
    Atomics.store(words, completionRing.produced, this.#produced);
    const armed = Atomics.load(words, completionRing.armed);
    if (armed === armings.any || (armed !== armings.none && this.#isSolicited)) {
      Atomics.store(words, completionRing.armed, armings.none);
      this.events++;
      this.#options.onEvent();
    }
    // Partner: the frontend stores that it naps, and then looks at `produced`.
    if (Atomics.load(words, completionRing.naps) !== 0) {
      Atomics.store(words, completionRing.naps, 0);
      this.#options.onNap();
    }
    this.#isSolicited = false;
  }

  #room(): number {
    const { entries } = this.#options.shape;
    // Looked at only when it matters, so that the guest's store does not wait for this processor's copy of the word.
    const room = entries - ((this.#produced - this.#consumed) >>> 0);
    if (room >= this.#batch.capacity) return room;
    const found = this.#freeEntries();
    if (found > 0) return found;
    // Asked for, then looked again: partner is the frontend, which stores `consumed` and then looks whether room is wanted.
    Atomics.store(this.#words, completionRing.wantsRoom, 1);
    return this.#freeEntries();
  }

  #freeEntries(): number {
    const { entries } = this.#options.shape;
    this.#consumed = Atomics.load(this.#words, completionRing.consumed);
    const waiting = (this.#produced - this.#consumed) >>> 0;
    if (waiting > entries) {
      throw new MillraceError(
        'MILLRACE_ERR_PROTOCOL',
        `a ring of ${entries} completions of which ${waiting} are unread`,
      );
    }
    return entries - waiting;
  }
}
