// A position in the memory pieces of a message: packets are filled from there, or their payload is
// copied there.

import type { CopyList, PacketSeal, SharedMemory } from '../../../native/index.ts';
import { Pieces } from '../pieces.ts';

export class PiecesCursor {
  readonly pieces = new Pieces();
  /** The piece of the last access, and which byte of the message is its first. */
  #piece = 0;
  #start = 0;

  /** For another message. */
  clear(): void {
    this.pieces.clear();
    this.#piece = 0;
    this.#start = 0;
  }

  /** How many pieces a packet could at most need. */
  get count(): number {
    return this.pieces.count;
  }

  /** Adds bytes `from` to `from + length` of the message to a packet. */
  gather(seal: PacketSeal, from: number, length: number): void {
    const { memories, offsets } = this.pieces;
    let at = from;
    for (let left = length; left > 0; ) {
      const skip = this.#seek(at);
      const taken = Math.min(left, this.pieces.lengths[this.#piece] - skip);
      seal.piece(memories[this.#piece], offsets[this.#piece] + skip, taken);
      at += taken;
      left -= taken;
    }
  }

  /**
   * Puts a packet's payload to bytes `to` to `to + length` of the message. False when its memory is
   * closed.
   */
  scatter(copies: CopyList, to: number, length: number, payload: SharedMemory, payloadOffset: number): boolean {
    const { memories, offsets } = this.pieces;
    let at = to;
    for (let left = length; left > 0; ) {
      const skip = this.#seek(at);
      const memory = memories[this.#piece];
      if (memory.isClosed) return false;
      const taken = Math.min(left, this.pieces.lengths[this.#piece] - skip);
      copies.add(memory, offsets[this.#piece] + skip, payload, payloadOffset + (at - to), taken);
      at += taken;
      left -= taken;
    }
    return true;
  }

  /** Puts a few bytes into the message at once. */
  write(to: number, bytes: Uint8Array): void {
    for (const [index, byte] of bytes.entries()) {
      const skip = this.#seek(to + index);
      const { buffer } = this.pieces.memories[this.#piece];
      new Uint8Array(buffer, this.pieces.offsets[this.#piece] + skip, 1)[0] = byte;
    }
  }

  /**
   * Goes to the piece that a byte is in; returns where in it. The byte must be one of the message.
   */
  #seek(at: number): number {
    const { lengths } = this.pieces;
    if (at < this.#start) {
      this.#piece = 0;
      this.#start = 0;
    }
    while (at - this.#start >= lengths[this.#piece]) this.#start += lengths[this.#piece++];
    return at - this.#start;
  }
}
