// Lifetimes: every verbs object knows what was made from it, and closes that first.

import { MillraceError } from '../errors.ts';

export abstract class VerbsObject implements Disposable {
  readonly #parents: readonly VerbsObject[];
  readonly #children = new Set<VerbsObject>();
  #isClosed = false;

  protected constructor(parents: readonly VerbsObject[]) {
    this.#parents = parents;
    for (const parent of parents) parent.#children.add(this);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Closes what was made from this, youngest first, and then this. Closing twice is harmless. */
  close(): void {
    if (this.#isClosed) return;
    for (const child of [...this.#children].reverse()) child.close();
    this.#isClosed = true;
    for (const parent of this.#parents) parent.#children.delete(this);
    this.release();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  protected abstract release(): void;

  protected checkOpen(): void {
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', `this ${this.constructor.name} is closed`);
  }
}
