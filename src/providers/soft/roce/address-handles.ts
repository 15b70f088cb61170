// Address handles of UD queue pairs: small numbers that stand for a destination.

import type { Gid, ProviderAh } from '../../../verbs/index.ts';
import type { AddressBook, Destination } from './address-book.ts';

export class AddressHandles {
  readonly #book: AddressBook;
  readonly #destinations = new Map<number, Destination>();
  #next = 1;

  constructor(book: AddressBook) {
    this.#book = book;
  }

  create(gid: Gid): ProviderAh {
    const destination = this.#book.take(gid);
    const handle = this.#next++;
    this.#destinations.set(handle, destination);
    return {
      handle,
      close: () => {
        if (this.#destinations.delete(handle)) this.#book.release(destination);
      },
    };
  }

  get(handle: number): Destination | undefined {
    return this.#destinations.get(handle);
  }
}
