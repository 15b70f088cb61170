// READs and atomics whose answers have not come, and the parts that READs were asked for in.

import { addSequence, sequenceDistance } from '../sequence.ts';

export class ReadsUnderWay {
  /** Where the answers end that are under way. */
  readonly #ends: number[] = [];
  /**
   * Where parts of READs end. A part that is requested again must not span the end of one part and
   * the start of another, because the peer knows the parts as they were.
   */
  readonly #partEnds: number[] = [];

  get count(): number {
    return this.#ends.length;
  }

  /** So many answers were asked for, from `psn` on. */
  asked(psn: number, packets: number): void {
    this.#ends.push(addSequence(psn, packets));
  }

  /** How many answers are left, from `psn` on, of a part that was asked for before. */
  partLeft(psn: number): number {
    for (const end of this.#partEnds) {
      const left = sequenceDistance(end, psn);
      if (left > 0) return left;
    }
    return Number.POSITIVE_INFINITY;
  }

  /**
   * A part that is requested again may be shorter than before; the peer may then know only the
   * shorter one.
   */
  endPart(end: number): void {
    const ends = this.#partEnds;
    let at = ends.length;
    while (at > 0 && sequenceDistance(ends[at - 1], end) > 0) at--;
    if (at === 0 || ends[at - 1] !== end) ends.splice(at, 0, end);
  }

  /** Everything before `to` is answered. */
  advance(to: number): void {
    dropBefore(this.#ends, to);
    dropBefore(this.#partEnds, to);
  }

  /** All are requested again, in the same parts. */
  rewind(): void {
    this.#ends.length = 0;
  }

  clear(): void {
    this.#ends.length = 0;
    this.#partEnds.length = 0;
  }
}

function dropBefore(ends: number[], to: number): void {
  while (ends.length > 0 && sequenceDistance(ends[0], to) <= 0) ends.shift();
}
