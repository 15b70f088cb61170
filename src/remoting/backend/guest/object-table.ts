// The objects of a guest by handle: handles have a generation, so that a stale or made-up one finds
// nothing.

import { UsageError } from '../../../errors.ts';

const INDEX_BITS = 16;
const INDEX_MASK = (1 << INDEX_BITS) - 1;
const GENERATIONS = 1 << 15;

interface Entry {
  generation: number;
  kind: string;
  object: object | undefined;
}

/** `Kinds` maps the names of kinds to the types of their objects. */
export class ObjectTable<Kinds extends { readonly [K in keyof Kinds]: object }> {
  readonly #entries: Entry[] = [];
  readonly #free: number[] = [];
  #count = 0;

  get count(): number {
    return this.#count;
  }

  /** Never 0. */
  add<K extends keyof Kinds & string>(kind: K, object: Kinds[K]): number {
    let index = this.#free.pop();
    if (index === undefined) {
      index = this.#entries.length;
      if (index > INDEX_MASK) throw new UsageError(`more than ${INDEX_MASK + 1} objects of one guest`);
      this.#entries.push({ generation: 0, kind, object: undefined });
    }
    const entry = this.#entries[index];
    entry.generation = (entry.generation % (GENERATIONS - 1)) + 1;
    entry.kind = kind;
    entry.object = object;
    this.#count++;
    return entry.generation * (1 << INDEX_BITS) + index;
  }

  /** Throws when the handle is not one of this guest's objects of that kind. */
  get<K extends keyof Kinds & string>(kind: K, handle: number): Kinds[K] {
    const entry = this.#entries[handle & INDEX_MASK];
    const isRight =
      entry !== undefined &&
      entry.object !== undefined &&
      entry.generation === handle >>> INDEX_BITS &&
      entry.kind === kind;
    if (!isRight) throw new UsageError(`there is no ${kind} with handle ${handle}`);
    return entry.object as Kinds[K];
  }

  remove(handle: number): void {
    const entry = this.#entries[handle & INDEX_MASK];
    if (entry?.object === undefined || entry.generation !== handle >>> INDEX_BITS) return;
    entry.object = undefined;
    this.#free.push(handle & INDEX_MASK);
    this.#count--;
  }
}
