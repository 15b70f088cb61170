// Posted receives, in order: of one QP, or shared by several.

import { UsageError } from '../../errors.ts';
import { type ProviderSrq, type ReceiveBatch, receiveRow, sgeRow } from '../../verbs/index.ts';

export class ReceiveQueue implements ProviderSrq {
  readonly pd: object;
  readonly rowWords: number;
  /** Rows as in a ReceiveBatch, a ring. */
  readonly words: Uint32Array;
  readonly #entries: number;
  readonly #maxSge: number;
  readonly #onLimit: (queue: ReceiveQueue) => void;
  #first = 0;
  #count = 0;
  #limit = 0;

  constructor(pd: object, entries: number, maxSge: number, onLimit: (queue: ReceiveQueue) => void = () => {}) {
    this.pd = pd;
    this.#entries = entries;
    this.#maxSge = maxSge;
    this.#onLimit = onLimit;
    this.rowWords = receiveRow.sge + maxSge * sgeRow.words;
    this.words = new Uint32Array(entries * this.rowWords);
  }

  get count(): number {
    return this.#count;
  }

  post(batch: ReceiveBatch): number {
    const taken = Math.min(batch.count, this.#entries - this.#count);
    for (let index = 0; index < taken; index++) {
      const from = index * batch.rowWords;
      const sges = batch.words[from + receiveRow.sgeCount];
      if (sges > this.#maxSge) {
        throw new UsageError(`a receive with ${sges} scatter-gather entries: the queue takes ${this.#maxSge}`);
      }
      const to = ((this.#first + this.#count) % this.#entries) * this.rowWords;
      const used = receiveRow.sge + sges * sgeRow.words;
      for (let word = 0; word < used; word++) this.words[to + word] = batch.words[from + word];
      this.#count++;
    }
    return taken;
  }

  /** The first word of the oldest receive, or -1. It stays until `shift`. */
  get front(): number {
    return this.#count === 0 ? -1 : this.#first * this.rowWords;
  }

  shift(): void {
    this.#first = this.#first + 1 === this.#entries ? 0 : this.#first + 1;
    this.#count--;
    if (this.#count < this.#limit) {
      this.#limit = 0;
      this.#onLimit(this);
    }
  }

  setLimit(limit: number): void {
    this.#limit = limit;
  }

  clear(): void {
    this.#first = 0;
    this.#count = 0;
  }

  close(): void {
    this.clear();
  }
}
