// A list of objects with something to do, each at most once, in order. Like a Set, but it allocates
// nothing.

/** An object that can be on lists: it has a mark for each list. */
export interface Marked {
  readonly marks: Uint8Array;
}

/** The mark of each list. */
export const marks = { kicked: 0, touched: 1, replying: 2, owing: 3, count: 4 } as const;

export class WorkList<T extends Marked> {
  readonly #mark: number;
  readonly #items: (T | undefined)[] = [];
  #at = 0;
  #count = 0;

  constructor(mark: number) {
    this.#mark = mark;
  }

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  add(item: T): void {
    if (item.marks[this.#mark] === 1) return;
    item.marks[this.#mark] = 1;
    this.#items[this.#count++] = item;
  }

  /** Its place stays, and is passed over. */
  remove(item: T): void {
    item.marks[this.#mark] = 0;
  }

  /**
   * Takes the oldest off the list, also one that was added since the last call; undefined when
   * there is none.
   */
  shift(): T | undefined {
    while (this.#at < this.#count) {
      const item = this.#items[this.#at];
      this.#items[this.#at++] = undefined;
      if (item === undefined || item.marks[this.#mark] === 0) continue;
      item.marks[this.#mark] = 0;
      return item;
    }
    this.#at = 0;
    this.#count = 0;
    return undefined;
  }
}
