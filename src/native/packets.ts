// RoCEv2 packets in batches: payload, padding and invariant CRC added to those that go, and checked
// in those that came.

import { addon } from './addon.ts';
import { SharedMemory } from './memory.ts';

/** As in native/icrc.c. */
export const MAX_PACKETS = 4096;
const SEAL_WORDS = 8;
const PIECE_WORDS = 4;
const CHECK_WORDS = 4;
const TWO_32 = 4_294_967_296;

/** What `PacketCheck.result` says of a packet that is not whole. */
export const NOT_WHOLE = 0xffff_ffff;

/** Packets whose headers are in a slab, and where their payloads are to be taken from. */
export class PacketSeal implements Disposable {
  readonly #slab: SharedMemory;
  readonly #localOffset: number;
  readonly #rows: SharedMemory;
  readonly #pieces: SharedMemory;
  readonly #row: Uint32Array;
  readonly #piece: Uint32Array;
  readonly #capacity: number;
  readonly #pieceCapacity: number;
  #count = 0;
  #pieceCount = 0;

  /** `localOffset`: where in the slab this side's address is. */
  constructor(slab: SharedMemory, localOffset: number, packets: number, pieces: number) {
    this.#slab = slab;
    this.#localOffset = localOffset;
    this.#capacity = packets;
    this.#pieceCapacity = pieces;
    this.#rows = SharedMemory.create({ sizeBytes: packets * SEAL_WORDS * 4, name: 'packets' });
    this.#pieces = SharedMemory.create({ sizeBytes: pieces * PIECE_WORDS * 4, name: 'pieces' });
    this.#row = new Uint32Array(this.#rows.buffer);
    this.#piece = new Uint32Array(this.#pieces.buffer);
  }

  get count(): number {
    return this.#count;
  }

  /** Whether there is room for a packet of so many pieces. */
  hasRoom(pieces: number): boolean {
    return this.#count < this.#capacity && this.#pieceCount + pieces <= this.#pieceCapacity;
  }

  /** A packet whose header is at `offset`; the pieces that are added next are its payload. */
  add(offset: number, headerBytes: number, payloadBytes: number, remoteOffset: number, identification: number): void {
    const row = this.#count++ * SEAL_WORDS;
    this.#row[row] = offset;
    this.#row[row + 1] = headerBytes;
    this.#row[row + 2] = payloadBytes;
    this.#row[row + 3] = -payloadBytes & 3;
    this.#row[row + 4] = remoteOffset;
    this.#row[row + 5] = identification;
    this.#row[row + 6] = this.#pieceCount;
    this.#row[row + 7] = 0;
  }

  piece(memory: SharedMemory, offset: number, length: number): void {
    const at = this.#pieceCount++ * PIECE_WORDS;
    this.#piece[at] = memory.id;
    this.#piece[at + 1] = offset;
    this.#piece[at + 2] = offset / TWO_32;
    this.#piece[at + 3] = length;
    this.#row[(this.#count - 1) * SEAL_WORDS + 7]++;
  }

  /** Completes all packets that were added. */
  run(): void {
    const count = this.#count;
    const pieces = this.#pieceCount;
    this.#count = 0;
    this.#pieceCount = 0;
    if (count === 0) return;
    addon.sealPackets(this.#slab.id, this.#localOffset, this.#rows.id, 0, count, this.#pieces.id, pieces);
  }

  close(): void {
    this.#rows.close();
    this.#pieces.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Packets that came, to be checked together. */
export class PacketCheck implements Disposable {
  readonly #slab: SharedMemory;
  readonly #localOffset: number;
  readonly #rows: SharedMemory;
  readonly #row: Uint32Array;
  #count = 0;

  constructor(slab: SharedMemory, localOffset: number) {
    this.#slab = slab;
    this.#localOffset = localOffset;
    this.#rows = SharedMemory.create({ sizeBytes: MAX_PACKETS * CHECK_WORDS * 4, name: 'packets' });
    this.#row = new Uint32Array(this.#rows.buffer);
  }

  get count(): number {
    return this.#count;
  }

  get isFull(): boolean {
    return this.#count === MAX_PACKETS;
  }

  clear(): void {
    this.#count = 0;
  }

  add(offset: number, length: number, remoteOffset: number): void {
    const row = this.#count++ * CHECK_WORDS;
    this.#row[row] = offset;
    this.#row[row + 1] = length;
    this.#row[row + 2] = remoteOffset;
  }

  run(): void {
    if (this.#count > 0) addon.checkPackets(this.#slab.id, this.#localOffset, this.#rows.id, this.#count);
  }

  offset(index: number): number {
    return this.#row[index * CHECK_WORDS];
  }

  length(index: number): number {
    return this.#row[index * CHECK_WORDS + 1];
  }

  remoteOffset(index: number): number {
    return this.#row[index * CHECK_WORDS + 2];
  }

  /** The IPv4 identification that the sender must have used (IPv6: 0), or NOT_WHOLE. */
  result(index: number): number {
    return this.#row[index * CHECK_WORDS + 3];
  }

  close(): void {
    this.#rows.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
