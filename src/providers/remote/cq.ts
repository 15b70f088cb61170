// Completion queues of a remote device: polled in shared memory, without a call to the backend.

import { loadAcquire, type SharedMemory, storeRelease } from '../../native/index.ts';
import { armings, completionRing, completionRingShape } from '../../remoting/protocol/index.ts';
import type { PollPolicy } from '../../spin/index.ts';
import {
  type CompletionBatch,
  completionRow,
  completionStatuses,
  type DrivenChannel,
  type ProviderCq,
} from '../../verbs/index.ts';
import type { RemoteDevice } from './device.ts';

const ROW = completionRow.words;

export class RemoteCq implements ProviderCq {
  readonly handle: number;
  readonly channel: DrivenChannel | undefined;
  readonly #device: RemoteDevice;
  readonly #memory: SharedMemory;
  readonly #words: Uint32Array;
  readonly #mask: number;
  readonly #slots: number;
  readonly #pollPolicy: PollPolicy;
  #consumed = 0;
  /** Armed, and no event yet. */
  #isArmed = false;
  /** Flushed completions of requests that the backend left, as flat rows. */
  #flushed: number[] = [];

  constructor(
    device: RemoteDevice,
    handle: number,
    entries: number,
    memory: SharedMemory,
    channel: DrivenChannel | undefined,
  ) {
    this.#device = device;
    this.#pollPolicy = device.connection.pollPolicy;
    this.handle = handle;
    this.channel = channel;
    this.#memory = memory;
    this.#words = new Uint32Array(memory.buffer);
    this.#slots = completionRingShape(entries).slots;
    this.#mask = this.#slots - 1;
  }

  poll(batch: CompletionBatch): number {
    const ring = this.#words;
    // Partner: `GuestCompletionQueue.#publish`, which stores after it has written the rows.
    const waiting = (loadAcquire(ring, completionRing.produced) - this.#consumed) >>> 0;
    if (waiting === 0) return this.#pollNothing(batch);
    this.#pollPolicy.hit();
    const count = Math.min(waiting, batch.capacity, this.#slots);
    const { words } = batch;
    for (let index = 0; index < count; index++) {
      const from = completionRing.rows + (this.#consumed & this.#mask) * ROW;
      const to = index * ROW;
      for (let word = 0; word < ROW; word++) words[to + word] = ring[from + word];
      this.#consumed = (this.#consumed + 1) >>> 0;
    }
    // Stores, then loads whether room is wanted. Partner: `GuestCompletionQueue.#room`, which
    // stores that and then loads `consumed`.
    storeRelease(ring, completionRing.consumed, this.#consumed);
    if (loadAcquire(ring, completionRing.wantsRoom) === 1) {
      storeRelease(ring, completionRing.wantsRoom, 0);
      this.#device.backend.wake();
    }
    return count;
  }

  arm(solicitedOnly: boolean): void {
    const ring = this.#words;
    this.#isArmed = true;
    if (loadAcquire(ring, completionRing.armed) === armings.any) return;
    // The program polls once more after arming. Partner: `GuestCompletionQueue.#publish`, which
    // stores `produced` and then loads this word.
    storeRelease(ring, completionRing.armed, solicitedOnly ? armings.solicited : armings.any);
    if (this.#device.isGone) this.notify();
  }

  /** Notifies the channel if the backend has given the event. */
  notify(): void {
    if (!this.#isArmed) return;
    // Partner: `GuestCompletionQueue.#publish`, which clears the word when it gives the event.
    const isDue = loadAcquire(this.#words, completionRing.armed) === armings.none;
    if (!isDue && !(this.#device.isGone && this.#flushed.length > 0)) return;
    this.#isArmed = false;
    this.channel?.notify(this);
  }

  /**
   * Adds the completion of a request that the backend, which is gone, does not complete any more.
   */
  flush(wrIdLow: number, wrIdHigh: number, qpNumber: number): void {
    const row = Array.from({ length: ROW }, () => 0);
    row[completionRow.wrId] = wrIdLow;
    row[completionRow.wrId + 1] = wrIdHigh;
    row[completionRow.status] = completionStatuses.WR_FLUSH_ERR;
    row[completionRow.qpNumber] = qpNumber;
    this.#flushed.push(...row);
  }

  close(): void {
    this.#device.removeCq(this);
    this.channel?.forget(this);
    this.#device.backend.callIfAlive('closeCq', (writer) => writer.u32(this.handle));
    this.#memory.close();
  }

  /** Sleeps until the next completion of this CQ, or for a short time. */
  #nap(): void {
    const ring = this.#words;
    // Stores that it naps, then loads once more. Partner: `GuestCompletionQueue.#publish`, which
    // stores `produced` and then loads this word.
    storeRelease(ring, completionRing.naps, 1);
    if (loadAcquire(ring, completionRing.produced) === this.#consumed)
      this.#device.connection.checkAlive(this.#pollPolicy.napNs);
    storeRelease(ring, completionRing.naps, 0);
  }

  #pollNothing(batch: CompletionBatch): number {
    if (this.#flushed.length > 0) {
      const count = Math.min(batch.capacity, this.#flushed.length / ROW);
      batch.words.set(this.#flushed.splice(0, count * ROW));
      return count;
    }
    const advice = this.#pollPolicy.miss();
    if (advice === 'nap') this.#nap();
    else if (advice === 'check') this.#device.connection.checkAlive();
    return 0;
  }
}
