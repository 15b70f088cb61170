// Frames over a byte stream: receives payloads straight into their place, and sends the frames of
// the QP.

import { crc32 } from 'node:zlib';
import { AGAIN, copyMemory, type SharedMemory } from '../../native/index.ts';
import type { FaultSource } from './fault-plan.ts';
import { frameProblem, HEADER_BYTES, HEADER_WORDS, headerRow } from './frame.ts';
import { Pieces } from './pieces.ts';
import type { ByteStream } from './stream.ts';

/** The QP, as its link sees it. */
export interface FrameHandler {
  /**
   * A header has come. Fills in where its payload goes, or returns false to have it thrown away.
   */
  onHeader(header: Uint32Array, into: Pieces): boolean;
  /** The payload is in its place. `isIntact` is false when its sum is wrong. */
  onFrame(header: Uint32Array, isIntact: boolean): void;
  /**
   * Fills in the next frame, if there is one. `mayAckAlone`: an acknowledgement does not wait for a
   * request to go out with.
   */
  nextFrame(header: Uint32Array, payload: Pieces, mayAckAlone: boolean): boolean;
  onBroken(reason: string): void;
  /** The link is about to be closed: `nextFrame` is called once more, for acknowledgements. */
  onClosing(): void;
}

interface LinkOptions {
  /**
   * Private to the link: two headers, room for payload that is not whole yet, and for payload that
   * is thrown away.
   */
  readonly scratch: SharedMemory;
  /** Frames carry sums that are checked. Both ends must agree. */
  readonly hasSums: boolean;
  /**
   * Acknowledgements cost a system call: they wait for a request to go out with, or for `pump` to
   * be called for them.
   */
  readonly delaysAcks?: boolean;
  readonly faults: FaultSource | undefined;
}

const TX_OFFSET = 64;
const HELD_OFFSET = 1024;
const TRASH_OFFSET = 4096;
/**
 * Memory changes by whole lines, as with hardware: a program that polls it for a word or a header
 * never finds half of one.
 */
const LINE_BYTES = 64;
/** Up to here, a payload comes to its place all at once. */
const SHORT_BYTES = 2048;
export const SCRATCH_BYTES = 4096 + 65_536;

/** So that one busy peer does not keep the others waiting. */
const FRAMES_A_TURN = 256;

export class Link {
  readonly #stream: ByteStream;
  readonly #handler: FrameHandler;
  readonly #options: LinkOptions;
  readonly #rxHeader: Uint32Array;
  readonly #txHeader: Uint32Array;
  readonly #rxPieces = new Pieces();
  readonly #txPayload = new Pieces();
  readonly #tx = new Pieces();
  /**
   * Received bytes of the current frame; the last `#heldBytes` of them are not in their place yet.
   */
  #rxBytes = 0;
  #heldBytes = 0;
  #rxIsWanted = false;
  #txBytes = 0;
  #isSending = false;
  #isClosed = false;
  #isPumping = false;
  /** The fault plan sends nothing before this time, in ns. */
  #sendAfterNs = 0;

  constructor(stream: ByteStream, handler: FrameHandler, options: LinkOptions) {
    this.#stream = stream;
    this.#handler = handler;
    this.#options = options;
    const { buffer } = options.scratch;
    this.#rxHeader = new Uint32Array(buffer, 0, HEADER_WORDS);
    this.#txHeader = new Uint32Array(buffer, TX_OFFSET, HEADER_WORDS);
  }

  get delaysAcks(): boolean {
    return this.#options.delaysAcks === true;
  }

  get mayReceive(): boolean {
    return !this.#isClosed && this.#stream.mayReceive;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /**
   * Receives and sends until nothing moves. True when it stopped to give other QPs their turn and
   * has more to do. `mustAck`: acknowledgements do not wait any longer.
   */
  pump(nowNs: number, mustAck = false): boolean {
    if (this.#isClosed || this.#isPumping) return false;
    this.#isPumping = true;
    try {
      const hasMore = this.#receive();
      this.#transmit(nowNs, mustAck || !this.delaysAcks);
      if (!this.#isClosed) this.#stream.flush();
      return hasMore && !this.#isClosed;
    } catch (error) {
      this.#break(error instanceof Error ? error.message : String(error));
      return false;
    } finally {
      this.#isPumping = false;
    }
  }

  /** When a fault plan holds frames back, until when. 0: not at all. */
  get heldUntilNs(): number {
    return this.#sendAfterNs;
  }

  close(): void {
    if (this.#isClosed) return;
    if (this.delaysAcks) this.#acknowledgeLast();
    this.#end();
  }

  /** What was carried out is acknowledged, as far as the stream takes it at once. */
  #acknowledgeLast(): void {
    this.#handler.onClosing();
    try {
      this.#transmit(0, true);
      this.#stream.flush();
    } catch {
      // The peer is gone.
    }
  }

  #end(): void {
    this.#isClosed = true;
    this.#stream.close();
  }

  #break(reason: string): void {
    if (this.#isClosed) return;
    this.#end();
    this.#handler.onBroken(reason);
  }

  #receive(): boolean {
    const { scratch, faults } = this.#options;
    let frames = 0;
    while (!this.#isClosed) {
      if (frames === FRAMES_A_TURN || faults?.isSlow() === true) return true;
      if (this.#rxBytes < HEADER_BYTES) {
        const got = this.#stream.receive(scratch, this.#rxBytes, HEADER_BYTES - this.#rxBytes);
        if (got === AGAIN) return false;
        if (got === 0) {
          this.#break('the peer closed the connection');
          return false;
        }
        this.#rxBytes += got;
        if (this.#rxBytes < HEADER_BYTES || !this.#beginFrame()) continue;
      }
      const missing = HEADER_BYTES + this.#rxHeader[headerRow.payloadBytes] - this.#rxBytes;
      if (missing > 0) {
        const got = this.#receivePayload(missing);
        if (got === AGAIN) return false;
        if (got === 0) {
          this.#break('the peer closed the connection in the middle of a message');
          return false;
        }
        this.#rxBytes += got;
        if (got < missing) continue;
      }
      frames++;
      this.#rxBytes = 0;
      if (this.#rxIsWanted || this.#rxHeader[headerRow.payloadBytes] === 0) {
        this.#handler.onFrame(this.#rxHeader, this.#rxIsWanted ? this.#isPayloadIntact() : true);
      }
    }
    return false;
  }

  /** False when the header is a protocol error, and the link is broken. */
  #beginFrame(): boolean {
    const header = this.#rxHeader;
    const problem = frameProblem(header) ?? (this.#isHeaderIntact() ? undefined : 'a frame whose header sum is wrong');
    if (problem !== undefined) {
      this.#break(`the peer sent ${problem}`);
      return false;
    }
    this.#rxPieces.clear();
    this.#rxIsWanted = this.#handler.onHeader(header, this.#rxPieces);
    return true;
  }

  #receivePayload(missing: number): number {
    if (!this.#rxIsWanted) {
      return this.#stream.receive(this.#options.scratch, TRASH_OFFSET, Math.min(missing, SCRATCH_BYTES - TRASH_OFFSET));
    }
    const placed = this.#rxBytes - HEADER_BYTES - this.#heldBytes;
    const { memories, offsets, lengths } = this.#rxPieces;
    let piece = 0;
    let at = placed;
    for (; piece < this.#rxPieces.count && at >= lengths[piece]; piece++) at -= lengths[piece];
    if (piece === this.#rxPieces.count) throw new Error('a payload without a place');
    const offset = offsets[piece] + at;
    const left = Math.min(lengths[piece] - at, missing + this.#heldBytes);
    if (this.#heldBytes === 0 && missing > SHORT_BYTES) {
      const waiting = this.#stream.waitingBytes;
      const length = waiting >= left ? left : waiting - ((offset + waiting) % LINE_BYTES);
      if (length > 0) return this.#stream.receive(memories[piece], offset, length);
    }
    const isShort = missing + this.#heldBytes <= SHORT_BYTES;
    return this.#hold(placed, isShort ? missing + this.#heldBytes : Math.min(left, LINE_BYTES - (offset % LINE_BYTES)));
  }

  /**
   * Receives bytes that must change together, and copies them to their place when they are
   * complete.
   */
  #hold(placed: number, togetherBytes: number): number {
    const { scratch } = this.#options;
    const got = this.#stream.receive(scratch, HELD_OFFSET + this.#heldBytes, togetherBytes - this.#heldBytes);
    if (got <= 0) return got;
    this.#heldBytes += got;
    if (this.#heldBytes < togetherBytes) return got;
    const { memories, offsets, lengths, count } = this.#rxPieces;
    let from = 0;
    let skip = placed;
    for (let piece = 0; piece < count && from < togetherBytes; piece++) {
      if (skip >= lengths[piece]) {
        skip -= lengths[piece];
        continue;
      }
      const length = Math.min(lengths[piece] - skip, togetherBytes - from);
      copyMemory(memories[piece], offsets[piece] + skip, scratch, HELD_OFFSET + from, length);
      from += length;
      skip = 0;
    }
    this.#heldBytes = 0;
    return got;
  }

  #transmit(nowNs: number, mayAckAlone: boolean): void {
    const { faults, scratch } = this.#options;
    while (!this.#isClosed) {
      if (!this.#isSending) {
        if (nowNs < this.#sendAfterNs) return;
        this.#sendAfterNs = 0;
        this.#txPayload.clear();
        if (!this.#handler.nextFrame(this.#txHeader, this.#txPayload, mayAckAlone)) return;
        if (this.#options.hasSums) this.#addSums();
        this.#tx.clear();
        this.#tx.add(scratch, TX_OFFSET, HEADER_BYTES);
        const { memories, offsets, lengths, count } = this.#txPayload;
        for (let piece = 0; piece < count; piece++) this.#tx.add(memories[piece], offsets[piece], lengths[piece]);
        if (faults !== undefined) {
          const fate = faults.next(this.#tx);
          if (fate.kind === 'disconnect') {
            this.#break('the fault plan cut the connection');
            return;
          }
          if (fate.kind === 'drop') continue;
          if (fate.kind === 'delay') this.#sendAfterNs = nowNs + fate.ns;
        }
        this.#isSending = true;
        this.#txBytes = 0;
        if (nowNs < this.#sendAfterNs) return;
      }
      const sent = this.#stream.send(this.#tx, this.#txBytes);
      if (sent === AGAIN) return;
      this.#txBytes += sent;
      if (this.#txBytes === this.#tx.totalBytes) this.#isSending = false;
    }
  }

  #addSums(): void {
    const header = this.#txHeader;
    header[headerRow.payloadSum] = sumOf(this.#txPayload, header[headerRow.payloadBytes]);
    header[headerRow.headerSum] = headerSum(header);
  }

  #isHeaderIntact(): boolean {
    return !this.#options.hasSums || headerSum(this.#rxHeader) === this.#rxHeader[headerRow.headerSum];
  }

  #isPayloadIntact(): boolean {
    if (!this.#options.hasSums) return true;
    return sumOf(this.#rxPieces, this.#rxHeader[headerRow.payloadBytes]) === this.#rxHeader[headerRow.payloadSum];
  }
}

function headerSum(header: Uint32Array): number {
  const bytes = new Uint8Array(header.buffer, header.byteOffset, HEADER_BYTES);
  const copy = bytes.slice();
  copy.fill(0, headerRow.headerSum * 4, headerRow.headerSum * 4 + 4);
  return crc32(copy);
}

function sumOf(pieces: Pieces, totalBytes: number): number {
  let sum = 0;
  let left = totalBytes;
  for (let piece = 0; piece < pieces.count && left > 0; piece++) {
    const length = Math.min(left, pieces.lengths[piece]);
    sum = crc32(new Uint8Array(pieces.memories[piece].buffer, pieces.offsets[piece], length), sum);
    left -= length;
  }
  return sum;
}
