// A list of copies between mappings that is carried out in one call.

import { addon } from './addon.ts';
import { SharedMemory } from './memory.ts';

/** Words of a row, as in native/memory.c. */
const ROW_WORDS = 8;
const TWO_32 = 4_294_967_296;

export class CopyList implements Disposable {
  readonly #memory: SharedMemory;
  readonly #rows: Uint32Array;
  readonly #capacity: number;
  #count = 0;

  constructor(capacity: number) {
    this.#memory = SharedMemory.create({ sizeBytes: capacity * ROW_WORDS * 4, name: 'copies' });
    this.#rows = new Uint32Array(this.#memory.buffer);
    this.#capacity = capacity;
  }

  /** Ranges of one memory must not overlap with what an earlier row of the list has yet to copy. */
  add(to: SharedMemory, toOffset: number, from: SharedMemory, fromOffset: number, sizeBytes: number): void {
    if (this.#count === this.#capacity) this.run();
    const rows = this.#rows;
    const row = this.#count++ * ROW_WORDS;
    rows[row] = from.id;
    rows[row + 1] = to.id;
    rows[row + 2] = fromOffset;
    rows[row + 3] = fromOffset / TWO_32;
    rows[row + 4] = toOffset;
    rows[row + 5] = toOffset / TWO_32;
    rows[row + 6] = sizeBytes;
  }

  /**
   * Carries out what was added, in order. Throws at a range that is not inside its memory; the rest
   * is forgotten.
   */
  run(): void {
    const count = this.#count;
    if (count === 0) return;
    this.#count = 0;
    addon.copyRanges(this.#memory.id, count);
  }

  close(): void {
    this.#memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
