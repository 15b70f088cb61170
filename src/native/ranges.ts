// A list of ranges of mapped memory for one gathered send or scattered receive: rows in memory,
// filled by index.

import { UsageError } from '../errors.ts';
import { SharedMemory } from './memory.ts';

/** As in native/socket.c. */
export const MAX_RANGES = 256;

// A row is three doubles: number of the mapping, offset, length. Doubles hold any offset a mapping
// can have.
const ROW_WORDS = 3;

export class RangeList implements Disposable {
  readonly #memory: SharedMemory;
  readonly #rows: Float64Array;
  readonly capacity: number;

  constructor(capacity = 64) {
    if (!Number.isInteger(capacity) || capacity < 1 || capacity > MAX_RANGES) {
      throw new UsageError(`a range list of ${capacity} rows: expected 1 to ${MAX_RANGES}`);
    }
    this.#memory = SharedMemory.create({ sizeBytes: capacity * ROW_WORDS * 8, name: 'ranges' });
    this.#rows = new Float64Array(this.#memory.buffer);
    this.capacity = capacity;
  }

  /** For `Socket.sendRanges`, where every row is checked against its memory. */
  get id(): number {
    return this.#memory.id;
  }

  set(index: number, memory: SharedMemory, offset: number, length: number): void {
    if (index >= this.capacity) throw new UsageError(`row ${index} of a range list of ${this.capacity}`);
    const row = index * ROW_WORDS;
    this.#rows[row] = memory.id;
    this.#rows[row + 1] = offset;
    this.#rows[row + 2] = length;
  }

  close(): void {
    this.#memory.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
