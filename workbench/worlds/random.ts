// Random numbers that are the same for a seed, which makes a soak repeatable.

export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** 0 ≤ x < 1: mulberry32. */
  next(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296;
  }

  /** A whole number, both ends included. */
  between(first: number, last: number): number {
    return first + Math.floor(this.next() * (last - first + 1));
  }

  /** A whole number in which each power of two has the same chance. */
  size(least: number, most: number): number {
    return Math.round(least * (most / least) ** this.next());
  }

  pick<T>(all: readonly [T, ...T[]]): T {
    return all[this.between(0, all.length - 1)] ?? all[0];
  }

  shuffle<T>(all: readonly T[]): T[] {
    const left = [...all];
    const shuffled: T[] = [];
    while (left.length > 0) shuffled.push(...left.splice(this.between(0, left.length - 1), 1));
    return shuffled;
  }

  /** An independent generator, which takes no numbers of this one. */
  fork(): Random {
    return new Random(Math.floor(this.next() * 4_294_967_296));
  }
}
