// Work requests as rows in shared memory: filled by typed-array writes, posted by one call, read by
// any provider.

import { UsageError } from '../errors.ts';
import { SharedMemory } from '../native/index.ts';

export const sendOpcodes = {
  send: 0,
  sendWithImm: 1,
  write: 2,
  writeWithImm: 3,
  read: 4,
  fetchAdd: 5,
  compareSwap: 6,
} as const;

export type SendOpcode = keyof typeof sendOpcodes;

export const sendFlags = {
  /** Completes with an entry in the send CQ. */
  signaled: 1,
  /** Starts only when all reads and atomics before it are done. */
  fence: 2,
  /** Wakes a receiver that asked for solicited events only. */
  solicited: 4,
  /**
   * The data is copied when it is posted: its memory may be reused when post returns, and needs no
   * registration.
   */
  inline: 8,
} as const;

/**
 * Words of a send row. Scatter-gather entries follow at `sge`, four words each. 64-bit values are
 * low word, high word.
 */
export const sendRow = {
  opcode: 0,
  flags: 1,
  wrId: 2,
  sgeCount: 4,
  imm: 5,
  remoteAddress: 6,
  rkey: 8,
  /** What to add, or to compare with. */
  compareAdd: 9,
  swap: 11,
  /** UD: the destination. */
  destQpNumber: 13,
  qkey: 14,
  addressHandle: 15,
  sge: 16,
} as const;

export const receiveRow = { wrId: 0, sgeCount: 2, sge: 4 } as const;

/** Words of a scatter-gather entry. */
export const sgeRow = { address: 0, length: 2, lkey: 3, words: 4 } as const;

const TWO_32 = 4_294_967_296;

/** A 64-bit field of a row as a number; addresses and ids stay below 2^53. */
export function read64(words: Uint32Array, at: number): number {
  return words[at] + words[at + 1] * TWO_32;
}

/** `value` is a whole number from 0 to 2^53-1. */
export function write64(words: Uint32Array, at: number, value: number): void {
  words[at] = value;
  words[at + 1] = value / TWO_32;
}

export interface BatchOptions {
  /** Rows. */
  readonly capacity?: number;
  /** Scatter-gather entries a row has room for. */
  readonly maxSge?: number;
}

/** What both kinds of batches have: rows of one size, counted from the front. */
abstract class Batch implements Disposable {
  readonly memory: SharedMemory;
  readonly words: Uint32Array;
  readonly capacity: number;
  readonly maxSge: number;
  readonly rowWords: number;
  readonly #sgeStart: number;
  readonly #sgeCount: number;
  #count = 0;

  protected constructor(options: BatchOptions, layout: { readonly sge: number; readonly sgeCount: number }) {
    const { capacity = 64, maxSge = 4 } = options;
    if (!Number.isInteger(capacity) || capacity < 1 || capacity > 65_536) {
      throw new UsageError(`a batch of ${capacity} rows: expected 1 to 65536`);
    }
    if (!Number.isInteger(maxSge) || maxSge < 1 || maxSge > 64) {
      throw new UsageError(`a batch with ${maxSge} scatter-gather entries a row: expected 1 to 64`);
    }
    this.capacity = capacity;
    this.maxSge = maxSge;
    this.#sgeStart = layout.sge;
    this.#sgeCount = layout.sgeCount;
    this.rowWords = layout.sge + maxSge * sgeRow.words;
    this.memory = SharedMemory.create({ sizeBytes: capacity * this.rowWords * 4, name: 'work-requests' });
    this.words = new Uint32Array(this.memory.buffer);
  }

  /** Rows that are filled. */
  get count(): number {
    return this.#count;
  }

  clear(): void {
    this.#count = 0;
  }

  /** Adds a range of registered memory to the last row. */
  sge(lkey: number, address: number, length: number): this {
    const row = (this.#count - 1) * this.rowWords;
    const used = this.words[row + this.#sgeCount];
    if (this.#count === 0 || used >= this.maxSge) {
      throw new UsageError(
        `a row of this batch takes ${this.maxSge} scatter-gather entries, and needs a request first`,
      );
    }
    const at = row + this.#sgeStart + used * sgeRow.words;
    write64(this.words, at, address);
    this.words[at + sgeRow.length] = length;
    this.words[at + sgeRow.lkey] = lkey;
    this.words[row + this.#sgeCount] = used + 1;
    return this;
  }

  close(): void {
    this.memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** The first word of a new, empty row. */
  protected addRow(): number {
    if (this.#count === this.capacity) throw new UsageError(`the batch is full: it has ${this.capacity} rows`);
    const row = this.#count++ * this.rowWords;
    this.words[row + this.#sgeCount] = 0;
    return row;
  }
}

/**
 * Requests for a send queue. Each method adds a row; `sge` adds memory to it. Nothing is allocated.
 */
export class SendBatch extends Batch {
  constructor(options: BatchOptions = {}) {
    super(options, sendRow);
  }

  send(wrId: number, flags: number = sendFlags.signaled): this {
    this.#row(sendOpcodes.send, wrId, flags);
    return this;
  }

  sendWithImm(wrId: number, imm: number, flags: number = sendFlags.signaled): this {
    const row = this.#row(sendOpcodes.sendWithImm, wrId, flags);
    this.words[row + sendRow.imm] = imm;
    return this;
  }

  write(wrId: number, remoteAddress: number, rkey: number, flags: number = sendFlags.signaled): this {
    this.#remoteRow(sendOpcodes.write, wrId, remoteAddress, rkey, flags);
    return this;
  }

  writeWithImm(
    wrId: number,
    remoteAddress: number,
    rkey: number,
    imm: number,
    flags: number = sendFlags.signaled,
  ): this {
    const row = this.#remoteRow(sendOpcodes.writeWithImm, wrId, remoteAddress, rkey, flags);
    this.words[row + sendRow.imm] = imm;
    return this;
  }

  read(wrId: number, remoteAddress: number, rkey: number, flags: number = sendFlags.signaled): this {
    this.#remoteRow(sendOpcodes.read, wrId, remoteAddress, rkey, flags);
    return this;
  }

  /**
   * Adds a 64-bit value, given in halves, to eight bytes of remote memory; what was there goes to
   * the row's memory.
   */
  fetchAdd(
    wrId: number,
    remoteAddress: number,
    rkey: number,
    addLow: number,
    addHigh: number = 0,
    flags: number = sendFlags.signaled,
  ): this {
    const row = this.#remoteRow(sendOpcodes.fetchAdd, wrId, remoteAddress, rkey, flags);
    this.words[row + sendRow.compareAdd] = addLow;
    this.words[row + sendRow.compareAdd + 1] = addHigh;
    return this;
  }

  /** Stores `swap` if the eight bytes equal `compare`; what was there goes to the row's memory. */
  compareSwap(
    wrId: number,
    remoteAddress: number,
    rkey: number,
    compareLow: number,
    compareHigh: number,
    swapLow: number,
    swapHigh: number,
    flags: number = sendFlags.signaled,
  ): this {
    const row = this.#remoteRow(sendOpcodes.compareSwap, wrId, remoteAddress, rkey, flags);
    this.words[row + sendRow.compareAdd] = compareLow;
    this.words[row + sendRow.compareAdd + 1] = compareHigh;
    this.words[row + sendRow.swap] = swapLow;
    this.words[row + sendRow.swap + 1] = swapHigh;
    return this;
  }

  /**
   * UD: the destination of the last row; `handle` is that of an `Ah`. A qkey with the top bit set
   * means the QP's own.
   */
  to(handle: number, qpNumber: number, qkey: number): this {
    if (this.count === 0) throw new UsageError('a destination needs a request first');
    const row = (this.count - 1) * this.rowWords;
    this.words[row + sendRow.destQpNumber] = qpNumber;
    this.words[row + sendRow.qkey] = qkey;
    this.words[row + sendRow.addressHandle] = handle;
    return this;
  }

  #row(opcode: number, wrId: number, flags: number): number {
    const row = this.addRow();
    this.words[row + sendRow.opcode] = opcode;
    this.words[row + sendRow.flags] = flags;
    write64(this.words, row + sendRow.wrId, wrId);
    return row;
  }

  #remoteRow(opcode: number, wrId: number, remoteAddress: number, rkey: number, flags: number): number {
    const row = this.#row(opcode, wrId, flags);
    write64(this.words, row + sendRow.remoteAddress, remoteAddress);
    this.words[row + sendRow.rkey] = rkey;
    return row;
  }
}

/** Requests for a receive queue or a shared receive queue. */
export class ReceiveBatch extends Batch {
  constructor(options: BatchOptions = {}) {
    super(options, receiveRow);
  }

  receive(wrId: number): this {
    write64(this.words, this.addRow() + receiveRow.wrId, wrId);
    return this;
  }
}
