// Huge pages for rings that are used a lot: they spare bulk transfers the 2 to 8 % of processor
// time that page table walks take. Most rings carry little and have touched few of their pages, so
// this is not done ahead.

import { HUGE_PAGE_BYTES, type SharedMemory } from '../native/index.ts';
import { type Geometry, type RingNumber, ringOffset } from './region-layout.ts';

/** A ring gets huge pages after it was filled so many times. */
const ROUNDS = 16;

export class HugeRings {
  readonly #memory: Pick<SharedMemory, 'useHugePages'>;
  readonly #geometry: Geometry;
  readonly #done = new Set<RingNumber>();

  constructor(memory: Pick<SharedMemory, 'useHugePages'>, geometry: Geometry) {
    this.#memory = memory;
    this.#geometry = geometry;
  }

  /** It has huge pages, or was tried. */
  has(ring: RingNumber): boolean {
    return this.#done.has(ring);
  }

  /**
   * So many bytes went through the ring. Huge pages are tried once, which may take some
   * milliseconds.
   */
  consider(ring: RingNumber, bytes: number): void {
    const sizeBytes = this.#geometry.slots * this.#geometry.slotBytes;
    if (bytes < ROUNDS * sizeBytes || this.#done.has(ring)) return;
    this.#done.add(ring);
    // A ring begins shortly behind the start of its huge page, because of the control words.
    const offset = ringOffset(ring, this.#geometry);
    const before = offset % HUGE_PAGE_BYTES;
    this.#memory.useHugePages(offset - before, sizeBytes + before);
  }
}
