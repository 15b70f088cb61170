// A list of memory ranges that is filled again and again without allocating: what a frame is sent
// from or received to.

import type { SharedMemory } from '../../native/index.ts';

export class Pieces {
  readonly memories: SharedMemory[] = [];
  readonly offsets: number[] = [];
  readonly lengths: number[] = [];
  count = 0;
  totalBytes = 0;

  clear(): void {
    this.count = 0;
    this.totalBytes = 0;
  }

  add(memory: SharedMemory, offset: number, length: number): void {
    if (length === 0) return;
    const at = this.count++;
    this.memories[at] = memory;
    this.offsets[at] = offset;
    this.lengths[at] = length;
    this.totalBytes += length;
  }
}

/** Eight bytes, least significant first, into one or more pieces. */
export function storeHalves(pieces: Pieces, low: number, high: number): void {
  let at = 0;
  for (let piece = 0; piece < pieces.count; piece++) {
    const bytes = new Uint8Array(pieces.memories[piece].buffer, pieces.offsets[piece], pieces.lengths[piece]);
    for (let index = 0; index < bytes.length; index++, at++) {
      bytes[index] = (at < 4 ? low : high) >>> ((at & 3) * 8);
    }
  }
}
