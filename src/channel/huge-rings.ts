// Huge pages for rings that are used a lot: they spare bulk 2 to 8 % of the processor time, which goes into walks through page tables.
// Most rings carry little and have touched few of their pages, so this is not done ahead.

import { HUGE_PAGE_BYTES, type SharedMemory } from '../native/index.ts';
import { type Geometry, type RingNumber, ringOffset } from './region-layout.ts';

/** So often bytes have filled the ring. */
const ROUNDS = 16;

export class HugeRings {
  readonly #memory: Pick<SharedMemory, 'useHugePages'>;
  readonly #geometry: Geometry;
  readonly #done = new Set<RingNumber>();

  constructor(memory: Pick<SharedMemory, 'useHugePages'>, geometry: Geometry) {
    this.#memory = memory;
    this.#geometry = geometry;
  }

  /** Now and then: so many bytes went through the ring. Tried once, which may take some milliseconds. */
  consider(ring: RingNumber, bytes: number): void {
    const sizeBytes = this.#geometry.slots * this.#geometry.slotBytes;
    if (bytes < ROUNDS * sizeBytes || this.#done.has(ring)) return;
    this.#done.add(ring);
    // A ring begins shortly behind the page that it fills, because of the control words.
    const offset = ringOffset(ring, this.#geometry);
    const before = offset % HUGE_PAGE_BYTES;
    this.#memory.useHugePages(offset - before, sizeBytes + before);
  }
}
