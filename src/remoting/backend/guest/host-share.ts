// What all guests of a backend have of its process's descriptors and mappings together: counted in
// memory that their threads share. A thread that ends in whatever way gives back what it had.

import { marksOf, maxDescriptors, maxMappings } from '../../../headroom/index.ts';

const resources = ['descriptors', 'mappings'] as const;
type HostResource = (typeof resources)[number];
export type HostAmounts = Readonly<Record<HostResource, number>>;

/** V8 maps memory as well, and ends the process when it cannot. */
const MAPPINGS_SHARE = 3 / 4;
/** What raises each limit. */
const advice: Readonly<Record<HostResource, string>> = {
  descriptors: 'raise LimitNOFILE of the backend',
  mappings: 'raise vm.max_map_count',
};

/** What guests may have of this process; the rest is for the backend itself. */
export function hostLimits(): HostAmounts {
  return {
    descriptors: marksOf(maxDescriptors()).short,
    mappings: Math.floor(maxMappings() * MAPPINGS_SHARE),
  };
}

export class HostShare {
  /** Plain data, for threads: limits, and what all have. */
  readonly memory: SharedArrayBuffer;
  readonly #limits: Int32Array;
  readonly #all: Int32Array;
  readonly #own: Int32Array;

  static create(limits: HostAmounts): HostShare {
    const memory = new SharedArrayBuffer(2 * resources.length * Int32Array.BYTES_PER_ELEMENT);
    new Int32Array(memory).set(resources.map((resource) => limits[resource]));
    return new HostShare(memory);
  }

  /** `own`: what the holder of this share has; another thread may have to give it back. */
  constructor(memory: SharedArrayBuffer, own = HostShare.nothing()) {
    this.memory = memory;
    this.#limits = new Int32Array(memory, 0, resources.length);
    this.#all = new Int32Array(memory, this.#limits.byteLength, resources.length);
    this.#own = new Int32Array(own);
  }

  static nothing(): SharedArrayBuffer {
    return new SharedArrayBuffer(resources.length * Int32Array.BYTES_PER_ELEMENT);
  }

  get limits(): HostAmounts {
    return amounts(this.#limits);
  }

  /** What all guests have. */
  get used(): HostAmounts {
    return amounts(this.#all);
  }

  /** Takes all, or nothing: then it says why. */
  take(wanted: HostAmounts): string | undefined {
    for (const [index, resource] of resources.entries()) {
      const before = Atomics.add(this.#all, index, wanted[resource]);
      Atomics.add(this.#own, index, wanted[resource]);
      if (before + wanted[resource] <= this.#limits[index]) continue;
      for (const [given, name] of resources.slice(0, index + 1).entries()) this.#give(given, wanted[name]);
      const has = `the guests of this backend have ${before} and may have ${this.#limits[index]}`;
      return `${wanted[resource]} more ${resource}: ${has} (${advice[resource]})`;
    }
    return undefined;
  }

  give(taken: HostAmounts): void {
    for (const [index, resource] of resources.entries()) this.#give(index, taken[resource]);
  }

  /** Gives back all that the holder has. */
  clear(): void {
    for (const index of resources.keys()) Atomics.sub(this.#all, index, Atomics.exchange(this.#own, index, 0));
  }

  #give(index: number, amount: number): void {
    Atomics.sub(this.#own, index, amount);
    Atomics.sub(this.#all, index, amount);
  }
}

function amounts(words: Int32Array): HostAmounts {
  const [descriptors, mappings] = words;
  return { descriptors, mappings };
}
