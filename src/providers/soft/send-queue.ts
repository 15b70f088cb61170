// Posted requests, in order, until the peer has answered them: their rows, and the data of the
// inline ones.

import { UsageError } from '../../errors.ts';
import { copyMemory, SharedMemory } from '../../native/index.ts';
import { access, completionStatuses, read64, sendFlags, sendOpcodes, sendRow, sgeRow } from '../../verbs/index.ts';
import { MAX_MESSAGE_BYTES } from './frame.ts';
import { Pieces, storeHalves } from './pieces.ts';
import { type RegionTable, resolveSges } from './region.ts';

/** What resolves the keys of the requests. */
export interface QueueOwner {
  readonly pd: object;
  readonly regions: RegionTable;
}

export interface SendQueueSpec {
  readonly sendRequests: number;
  readonly maxSge: number;
  readonly maxInlineBytes: number;
}

export class SendQueue {
  readonly maxSge: number;
  readonly maxInlineBytes: number;
  /** Rows as in a SendBatch; `rowOf` says where. */
  readonly words: Uint32Array;
  readonly #owner: QueueOwner;
  readonly #entries: number;
  readonly #rowWords: number;
  /** By entry: bytes of the message, and whether a read or atomic has its answer. */
  readonly #bytes: Uint32Array;
  readonly #isAnswered: Uint8Array;
  readonly #inline: SharedMemory | undefined;
  readonly #pieces = new Pieces();
  #first = 0;
  #count = 0;

  constructor(owner: QueueOwner, { sendRequests, maxSge, maxInlineBytes }: SendQueueSpec) {
    this.#owner = owner;
    this.#entries = sendRequests;
    this.maxSge = maxSge;
    this.maxInlineBytes = maxInlineBytes;
    this.#rowWords = sendRow.sge + maxSge * sgeRow.words;
    this.words = new Uint32Array(sendRequests * this.#rowWords);
    this.#bytes = new Uint32Array(sendRequests);
    this.#isAnswered = new Uint8Array(sendRequests);
    const inlineBytes = sendRequests * maxInlineBytes;
    this.#inline = inlineBytes === 0 ? undefined : SharedMemory.create({ sizeBytes: inlineBytes, name: 'inline' });
  }

  get count(): number {
    return this.#count;
  }

  get isFull(): boolean {
    return this.#count === this.#entries;
  }

  get isHalfFull(): boolean {
    return this.#count * 2 >= this.#entries;
  }

  /**
   * The entry at a position, counted from the oldest. It stays the same entry until it is shifted
   * out.
   */
  entryAt(position: number): number {
    return (this.#first + position) % this.#entries;
  }

  rowOf(entry: number): number {
    return entry * this.#rowWords;
  }

  opcodeOf(entry: number): number {
    return this.words[entry * this.#rowWords + sendRow.opcode];
  }

  bytesOf(entry: number): number {
    return this.#bytes[entry];
  }

  isAnswered(entry: number): boolean {
    return this.#isAnswered[entry] === 1;
  }

  answer(entry: number): void {
    this.#isAnswered[entry] = 1;
  }

  /** Takes a row over; there must be room. Throws on an invalid row, which is not taken. */
  store(from: Uint32Array, row: number): void {
    const opcode = from[row + sendRow.opcode];
    const sges = from[row + sendRow.sgeCount];
    if (opcode > sendOpcodes.compareSwap) throw new UsageError(`a send request with opcode ${opcode}`);
    if (sges > this.maxSge) {
      throw new UsageError(`a send request with ${sges} scatter-gather entries: the QP takes ${this.maxSge}`);
    }
    const entry = this.entryAt(this.#count);
    const to = this.rowOf(entry);
    const used = sendRow.sge + sges * sgeRow.words;
    for (let word = 0; word < used; word++) this.words[to + word] = from[row + word];
    let bytes = 0;
    for (let sge = 0; sge < sges; sge++) bytes += from[row + sendRow.sge + sge * sgeRow.words + sgeRow.length];
    if ((from[row + sendRow.flags] & sendFlags.inline) !== 0) this.#takeInline(entry, bytes);
    this.#bytes[entry] = Math.min(bytes, 0xffff_ffff);
    this.#isAnswered[entry] = 0;
    this.#count++;
  }

  /** The memory of an entry, if its keys allow the access. */
  resolve(entry: number, needed: number, into: Pieces): boolean {
    const row = this.rowOf(entry);
    if ((this.words[row + sendRow.flags] & sendFlags.inline) !== 0 && this.#inline !== undefined) {
      into.add(this.#inline, entry * this.maxInlineBytes, this.#bytes[entry]);
      return true;
    }
    const { pd, regions } = this.#owner;
    const sges = this.words[row + sendRow.sgeCount];
    return resolveSges(regions, pd, this.words, row + sendRow.sge, sges, needed, into);
  }

  /**
   * Stores the result of an atomic in the memory of its entry. False when the keys do not allow
   * that.
   */
  storeAtomicResult(entry: number, low: number, high: number, pieces: Pieces): boolean {
    pieces.clear();
    if (!this.resolve(entry, access.localWrite, pieces)) return false;
    storeHalves(pieces, low, high);
    return true;
  }

  /** A status other than SUCCESS when an entry is invalid; otherwise its memory is in `into`. */
  problemOf(entry: number, maxRdAtomic: number, into: Pieces): number {
    const bytes = this.#bytes[entry];
    const opcode = this.opcodeOf(entry);
    const isRead = opcode >= sendOpcodes.read;
    into.clear();
    if (bytes > MAX_MESSAGE_BYTES) return completionStatuses.LOC_LEN_ERR;
    if (isRead && maxRdAtomic === 0) return completionStatuses.LOC_QP_OP_ERR;
    if (opcode >= sendOpcodes.fetchAdd && bytes !== 8) return completionStatuses.LOC_LEN_ERR;
    const isFine = this.resolve(entry, isRead ? access.localWrite : 0, into);
    return isFine ? completionStatuses.SUCCESS : completionStatuses.LOC_PROT_ERR;
  }

  /** The oldest is done. Its row stays readable until the next one is stored. */
  shift(): void {
    this.#first = this.#first + 1 === this.#entries ? 0 : this.#first + 1;
    this.#count--;
  }

  clear(): void {
    this.#count = 0;
  }

  close(): void {
    this.#inline?.close();
  }

  /** Copies the data now; a wrong key fails when the request's turn comes. */
  #takeInline(entry: number, bytes: number): void {
    const row = this.rowOf(entry);
    if (bytes > this.maxInlineBytes || this.words[row + sendRow.opcode] >= sendOpcodes.read) {
      throw new UsageError(`an inline request of ${bytes} bytes: sends and writes take up to ${this.maxInlineBytes}`);
    }
    const sges = this.words[row + sendRow.sgeCount];
    const { pd, regions } = this.#owner;
    const pieces = this.#pieces;
    this.#nameRegions(row, sges);
    pieces.clear();
    const isFine = resolveSges(regions, pd, this.words, row + sendRow.sge, sges, 0, pieces);
    if (this.#inline === undefined || !isFine) {
      // It becomes a request that is not inline, which fails when its turn comes.
      this.words[row + sendRow.flags] &= ~sendFlags.inline;
      return;
    }
    let at = entry * this.maxInlineBytes;
    for (let piece = 0; piece < pieces.count; piece++) {
      copyMemory(this.#inline, at, pieces.memories[piece], pieces.offsets[piece], pieces.lengths[piece]);
      at += pieces.lengths[piece];
    }
  }

  /** Inline data needs no key: where no key fits, the region is found by its address. */
  #nameRegions(row: number, sges: number): void {
    const { pd, regions } = this.#owner;
    for (let sge = 0; sge < sges; sge++) {
      const at = row + sendRow.sge + sge * sgeRow.words;
      if (regions.local(this.words[at + sgeRow.lkey], pd) !== undefined) continue;
      const region = regions.containing(read64(this.words, at + sgeRow.address), pd);
      if (region !== undefined) this.words[at + sgeRow.lkey] = region.lkey;
    }
  }
}
