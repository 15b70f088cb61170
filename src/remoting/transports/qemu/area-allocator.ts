// Allocates page-aligned parts of one area of memory; free parts that touch are joined.

import { constants } from 'node:os';
import { SystemError, UsageError } from '../../../errors.ts';

export const PAGE_BYTES = 4096;

interface Hole {
  readonly offset: number;
  readonly sizeBytes: number;
}

export class AreaAllocator {
  readonly sizeBytes: number;
  /** In order, never touching each other. */
  #holes: Hole[];
  /** Sizes of allocated parts by their offset, in whole pages. */
  readonly #used = new Map<number, number>();

  /** Allocates from `start` on, which is a multiple of the page size. */
  constructor(start: number, sizeBytes: number) {
    if (start % PAGE_BYTES !== 0 || sizeBytes % PAGE_BYTES !== 0 || sizeBytes <= 0) {
      throw new UsageError(`share ${sizeBytes} bytes from ${start} on: neither may be a part of a page`);
    }
    this.sizeBytes = sizeBytes;
    this.#holes = [{ offset: start, sizeBytes }];
  }

  get usedBytes(): number {
    return this.sizeBytes - this.#holes.reduce((sum, hole) => sum + hole.sizeBytes, 0);
  }

  /** The offset of a part of at least that size. Throws ENOMEM when there is no hole for it. */
  allocate(sizeBytes: number): number {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 1) throw new UsageError(`share ${sizeBytes} bytes`);
    const needed = Math.ceil(sizeBytes / PAGE_BYTES) * PAGE_BYTES;
    const index = this.#holes.findIndex((hole) => hole.sizeBytes >= needed);
    const hole = this.#holes[index];
    if (hole === undefined) {
      const left = `${sizeBytes} bytes; ${this.usedBytes} of the ${this.sizeBytes} that a guest shares are used`;
      throw new SystemError(-constants.errno.ENOMEM, 'mmap', `${left}; start it with more`);
    }
    const rest = { offset: hole.offset + needed, sizeBytes: hole.sizeBytes - needed };
    this.#holes.splice(index, 1, ...(rest.sizeBytes > 0 ? [rest] : []));
    this.#used.set(hole.offset, needed);
    return hole.offset;
  }

  free(offset: number): void {
    const sizeBytes = this.#used.get(offset);
    if (sizeBytes === undefined) throw new UsageError(`give back shared memory at ${offset}: it was not given out`);
    this.#used.delete(offset);
    const after = this.#holes.findIndex((hole) => hole.offset > offset);
    const index = after < 0 ? this.#holes.length : after;
    const [before, next] = [this.#holes[index - 1], this.#holes[index]];
    const joinsBefore = before !== undefined && before.offset + before.sizeBytes === offset;
    const joinsNext = next !== undefined && offset + sizeBytes === next.offset;
    const joined = {
      offset: joinsBefore ? before.offset : offset,
      sizeBytes: sizeBytes + (joinsBefore ? before.sizeBytes : 0) + (joinsNext ? next.sizeBytes : 0),
    };
    this.#holes.splice(index - (joinsBefore ? 1 : 0), (joinsBefore ? 1 : 0) + (joinsNext ? 1 : 0), joined);
  }

  /** For tests and figures: the free parts, in order. */
  get holes(): readonly Hole[] {
    return this.#holes;
  }
}
