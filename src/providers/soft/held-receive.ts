// The receive that a message arrives in: taken out of its queue, which other QPs may share.

import { access, completionOpcodes, completionStatuses, receiveRow, sgeRow } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import type { Pieces } from './pieces.ts';
import type { ReceiveQueue } from './receive-queue.ts';
import { type RegionTable, resolveSges } from './region.ts';

export interface HeldReceiveOwner {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  fail(reason: string): void;
}

export class HeldReceive {
  readonly #owner: HeldReceiveOwner;
  readonly #cq: SoftCq;
  readonly #queue: ReceiveQueue;
  readonly #row: Uint32Array;
  #isHeld = false;

  constructor(owner: HeldReceiveOwner, cq: SoftCq, queue: ReceiveQueue) {
    this.#owner = owner;
    this.#cq = cq;
    this.#queue = queue;
    this.#row = new Uint32Array(queue.rowWords);
  }

  /** Takes the next one, unless one is held already. False when there is none. */
  take(): boolean {
    if (this.#isHeld) return true;
    const { front, words, rowWords } = this.#queue;
    if (front < 0) return false;
    for (let word = 0; word < rowWords; word++) this.#row[word] = words[front + word];
    this.#isHeld = true;
    this.#queue.shift();
    return true;
  }

  /** How many bytes it has room for. */
  get roomBytes(): number {
    const sges = this.#row[receiveRow.sgeCount];
    let room = 0;
    for (let sge = 0; sge < sges; sge++) room += this.#row[receiveRow.sge + sge * sgeRow.words + sgeRow.length];
    return room;
  }

  /** Its memory; false when it names memory that it may not use. */
  resolve(into: Pieces): boolean {
    const { pd, regions } = this.#owner;
    const sges = this.#row[receiveRow.sgeCount];
    return resolveSges(regions, pd, this.#row, receiveRow.sge, sges, access.localWrite, into);
  }

  /** Pushes its completion. `sourceQp` is that of a datagram's sender. */
  complete(
    status: number,
    opcode: number,
    bytes: number,
    imm: number,
    hasImm: boolean,
    isSolicited: boolean,
    sourceQp = 0,
  ): void {
    const low = this.#row[receiveRow.wrId];
    const high = this.#row[receiveRow.wrId + 1];
    const { number } = this.#owner;
    this.#isHeld = false;
    const isKept = this.#cq.push(low, high, status, opcode, bytes, number, imm, hasImm, isSolicited, sourceQp);
    if (!isKept) this.#owner.fail('its CQ is full');
  }

  fail(status: number): void {
    this.complete(status, completionOpcodes.receive, 0, 0, false, true);
  }

  /**
   * Flushes everything that was posted and not used, in order. Receives of a shared queue stay
   * there.
   */
  flush(isShared: boolean): void {
    if (this.#isHeld) this.fail(completionStatuses.WR_FLUSH_ERR);
    while (!isShared && this.take()) this.fail(completionStatuses.WR_FLUSH_ERR);
  }

  /** Drops everything without completions. */
  reset(isShared: boolean): void {
    this.#isHeld = false;
    if (!isShared) this.#queue.clear();
  }
}
