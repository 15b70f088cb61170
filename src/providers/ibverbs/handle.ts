// The handle of something that libibverbs made: closed once, and not used afterwards.

import { type IbvKind, ibverbs, ibvKinds } from '../../native/index.ts';
import { checkVerbs } from './errors.ts';

export class Handle {
  readonly value: number;
  readonly #kind: IbvKind;
  #isClosed = false;

  constructor(value: number, kind: IbvKind) {
    this.value = value;
    this.#kind = kind;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  close(): void {
    if (this.#isClosed) return;
    checkVerbs(ibverbs.ibvClose(this.value, ibvKinds[this.#kind]), 'libibverbs', () => `close a ${this.#kind}`);
    this.#isClosed = true;
  }
}
