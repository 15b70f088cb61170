// The send queue of a guest's QP, as its backend has it.

import {
  completionRow,
  type Mr,
  type Qp,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
  write64,
} from '../../verbs/index.ts';
import type { RequestRingShape } from '../protocol/index.ts';
import { requestRing } from '../protocol/index.ts';
import { type GuestKeys, overfull, POST_ROWS, type PostedQueue } from './posted-queue.ts';

export interface SendSideOptions {
  readonly tag: number;
  readonly qp: Qp;
  /** The QP's memory, which the guest can write. */
  readonly words: Uint32Array;
  readonly shape: RequestRingShape;
  readonly keys: GuestKeys;
  /** The inline bytes of the ring, registered; the guest does not know the key. */
  readonly inline: Mr | undefined;
  readonly inlineStride: number;
  readonly maxInlineBytes: number;
  readonly signalAll: boolean;
  /** Private rows with room for `shape.maxSge` entries. */
  readonly batch: SendBatch;
  /** The device would not even take a request: the QP is done for. Ids of all that were under way, in halves. */
  readonly onRefused: (error: unknown, wrIds: readonly number[]) => void;
}

export class SendSide implements PostedQueue {
  readonly tag: number;
  isBlocked = false;
  readonly #options: SendSideOptions;
  readonly #words: Uint32Array;
  readonly #mask: number;
  readonly #rowsAt: number;
  readonly #producedAt: number;
  /** By place: the guest's id, and whether it gets a completion if all goes well. */
  readonly #wrIds: Uint32Array;
  readonly #isWanted: Uint8Array;
  /** Unsignalled ones in a row, so far. */
  #silent = 0;
  /** Counts, as in the ring: seen in it, taken out of it, and done. Modulo 2^32. */
  #produced = 0;
  #taken = 0;
  #completed = 0;

  constructor(options: SendSideOptions) {
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
    return !this.isBlocked && Atomics.load(this.#words, this.#producedAt) !== this.#taken;
  }

  /** What `pump` will take is what was posted by now: receives that were posted before it are taken in between. */
  look(): void {
    // Partner: the frontend's store after it has written the rows.
    this.#produced = Atomics.load(this.#words, this.#producedAt);
  }

  pump(): number {
    let waiting = (this.#produced - this.#taken) >>> 0;
    if (waiting === 0) return 0;
    const free = this.#options.shape.requests - ((this.#taken - this.#completed) >>> 0);
    if (waiting > free) throw overfull(waiting, free);
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
    // Requests complete in order: what was posted before it, unsignalled, is done as well.
    this.#completed = (place + 1) >>> 0;
    this.isBlocked = false;
    const slot = place & this.#mask;
    row[at + completionRow.wrId] = this.#wrIds[slot * 2];
    row[at + completionRow.wrId + 1] = this.#wrIds[slot * 2 + 1];
    return row[at + completionRow.status] !== 0 || this.#isWanted[slot] === 1;
  }

  publish(): void {
    // Partner: the frontend's load when it looks for room.
    Atomics.store(this.#words, this.#options.shape.at + requestRing.completed, this.#completed);
  }

  reset(): void {
    this.#completed = this.#taken;
    this.isBlocked = false;
    this.#silent = 0;
    this.publish();
  }

  /** How many of the batch were taken nobody says, so nothing that is under way is waited for any more. */
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

  /** From here on the guest cannot change the row any more; then it is checked. */
  #copyRow(place: number): void {
    const { batch, shape, signalAll } = this.#options;
    const from = this.#rowsAt + (place & this.#mask) * shape.rowWords;
    const to = batch.count * batch.rowWords;
    batch.send(0);
    const { words } = batch;
    const ring = this.#words;
    for (let word = 0; word < sendRow.sge; word++) words[to + word] = ring[from + word];
    const slot = place & this.#mask;
    this.#wrIds[slot * 2] = words[to + sendRow.wrId];
    this.#wrIds[slot * 2 + 1] = words[to + sendRow.wrId + 1];
    words[to + sendRow.wrId] = place;
    words[to + sendRow.wrId + 1] = this.tag;
    const sges = words[to + sendRow.sgeCount];
    const isSignaled = signalAll || (words[to + sendRow.flags] & sendFlags.signaled) !== 0;
    this.#isWanted[slot] = isSignaled ? 1 : 0;
    this.#signalSometimes(to, isSignaled);
    if (sges > shape.maxSge || words[to + sendRow.opcode] > sendOpcodes.compareSwap) {
      this.#spoil(to);
      return;
    }
    const used = sendRow.sge + sges * sgeRow.words;
    for (let word = sendRow.sge; word < used; word++) words[to + word] = ring[from + word];
    if ((words[to + sendRow.flags] & sendFlags.inline) !== 0) this.#pointInline(to, sges, slot);
    else this.#checkKeys(to, sges);
    if (this.#options.qp.type === 'UD') this.#checkAddressHandle(to);
  }

  #checkAddressHandle(to: number): void {
    const { batch, keys } = this.#options;
    const at = to + sendRow.addressHandle;
    if (!keys.addressHandles.has(batch.words[at])) batch.words[at] = 0;
  }

  /**
   * A queue whose requests are all unsignalled would never tell that it has room again. So one in half a queue is
   * signalled natively, and its completion is kept from the guest.
   */
  #signalSometimes(to: number, isSignaled: boolean): void {
    this.#silent = isSignaled ? 0 : this.#silent + 1;
    if (this.#silent * 2 < this.#options.shape.requests) return;
    this.#silent = 0;
    this.#options.batch.words[to + sendRow.flags] |= sendFlags.signaled;
  }

  /** Ranges are checked by the device, which has the region's size; the row is out of the guest's reach by now. */
  #checkKeys(to: number, sges: number): void {
    const { batch, keys } = this.#options;
    for (let sge = 0; sge < sges; sge++) {
      const at = to + sendRow.sge + sge * sgeRow.words + sgeRow.lkey;
      if (!keys.lkeys.has(batch.words[at])) batch.words[at] = 0;
    }
  }

  /** The frontend has put the bytes into the ring, one after the other. The device takes them from there at once. */
  #pointInline(to: number, sges: number, slot: number): void {
    const { batch, inline, inlineStride, maxInlineBytes } = this.#options;
    const { words } = batch;
    let bytes = 0;
    for (let sge = 0; sge < sges; sge++) bytes += words[to + sendRow.sge + sge * sgeRow.words + sgeRow.length];
    if (inline === undefined || bytes > maxInlineBytes || words[to + sendRow.opcode] >= sendOpcodes.read) {
      this.#spoil(to);
      return;
    }
    words[to + sendRow.sgeCount] = bytes === 0 ? 0 : 1;
    write64(words, to + sendRow.sge, inline.address + slot * inlineStride);
    words[to + sendRow.sge + sgeRow.length] = bytes;
    words[to + sendRow.sge + sgeRow.lkey] = inline.lkey;
  }

  /** A row that no frontend writes becomes one that every device fails, in its turn. */
  #spoil(to: number): void {
    const { words } = this.#options.batch;
    words[to + sendRow.opcode] = sendOpcodes.send;
    words[to + sendRow.flags] = sendFlags.signaled;
    words[to + sendRow.sgeCount] = 1;
    write64(words, to + sendRow.sge, 0);
    words[to + sendRow.sge + sgeRow.length] = 1;
    words[to + sendRow.sge + sgeRow.lkey] = 0;
  }
}
