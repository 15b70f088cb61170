// Counts words of lower-case letters without a string for each: every letter is one step in a tree.

const LETTERS = 26;
const FIRST_LETTER = 0x61;

export class WordTrie {
  /** The child of each node for each letter; 0: none yet. */
  #next = new Int32Array(LETTERS * 1024);
  #counts = new Float64Array(1024);
  #nodes = 1;

  add(text: Uint8Array): void {
    let node = 0;
    for (let at = 0; at < text.length; at++) {
      const letter = (text[at] ?? 0) - FIRST_LETTER;
      if (letter >= 0 && letter < LETTERS) {
        node = this.#next[node * LETTERS + letter] || this.#grow(node * LETTERS + letter);
      } else if (node !== 0) {
        this.#counts[node] = (this.#counts[node] ?? 0) + 1;
        node = 0;
      }
    }
    if (node !== 0) this.#counts[node] = (this.#counts[node] ?? 0) + 1;
  }

  *counts(node = 0, word = ''): Generator<[word: string, count: number]> {
    const count = this.#counts[node] ?? 0;
    if (count > 0) yield [word, count];
    for (let letter = 0; letter < LETTERS; letter++) {
      const child = this.#next[node * LETTERS + letter] ?? 0;
      if (child !== 0) yield* this.counts(child, word + String.fromCharCode(FIRST_LETTER + letter));
    }
  }

  #grow(edge: number): number {
    const node = this.#nodes++;
    if (node === this.#counts.length) {
      const [next, counts] = [this.#next, this.#counts];
      this.#next = new Int32Array(next.length * 2);
      this.#next.set(next);
      this.#counts = new Float64Array(counts.length * 2);
      this.#counts.set(counts);
    }
    this.#next[edge] = node;
    return node;
  }
}
