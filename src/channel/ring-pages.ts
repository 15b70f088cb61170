// The pages of a ring that is used a little: they are given back once their records were read, so
// that it does not have all of its pages after it was gone through once.
//
// Only slots that belong to this side alone are discarded: of the ring that it reads, those that it
// has read and not told of; of its own copy of the ring that it writes, those that the peer has
// told of. Both read as zero then, as slots do in which no record starts.

import { SystemError } from '../errors.ts';
import type { SharedMemory } from '../native/index.ts';
import { type Geometry, type RingNumber, ringOffset } from './region-layout.ts';

const PAGE_BYTES = 4096;
/**
 * Of soft devices, which write through the mapping. A card would go on writing to the old pages.
 */
const unpinned: ReadonlySet<string> = new Set(['shm', 'tcp', 'roce']);

export class RingPages {
  readonly #memory: Pick<SharedMemory, 'discard'>;
  readonly #geometry: Geometry;
  readonly #base: number;
  #isRefused = false;

  constructor(memory: Pick<SharedMemory, 'discard'>, geometry: Geometry, ring: RingNumber) {
    this.#memory = memory;
    this.#geometry = geometry;
    this.#base = ringOffset(ring, geometry);
  }

  /** Whether memory that is registered on a device of that wire may lose its pages. */
  static mayDiscard(wire: string): boolean {
    return unpinned.has(wire);
  }

  /**
   * Gives back the whole pages of the slots between two positions, at most `free` of which belong
   * to this side. Does nothing where they are further apart, as a peer may bring about.
   */
  discard(from: number, to: number, free = this.#geometry.slots): void {
    const { slots } = this.#geometry;
    const start = from & (slots - 1);
    const count = (to - from) >>> 0;
    if (count > free) return;
    const toEnd = Math.min(count, slots - start);
    this.#discardSlots(start, toEnd);
    this.#discardSlots(0, count - toEnd);
  }

  #discardSlots(start: number, count: number): void {
    const { slotBytes } = this.#geometry;
    const first = Math.ceil((this.#base + start * slotBytes) / PAGE_BYTES) * PAGE_BYTES;
    const end = Math.floor((this.#base + (start + count) * slotBytes) / PAGE_BYTES) * PAGE_BYTES;
    if (end <= first || this.#isRefused) return;
    try {
      this.#memory.discard(first, end - first);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      // A peer that has mapped the memory may have sealed it: then the pages stay.
      this.#isRefused = true;
    }
  }
}
