// Whether a shared library is on this machine and has what is needed from it.

import { addon } from './addon.ts';

export type LibraryLookUp =
  | { readonly state: 'found'; readonly path: string }
  | { readonly state: 'absent'; readonly reason: string }
  | { readonly state: 'symbol-missing'; readonly reason: string };

/** Opens the library as a program would, looks for the symbol and closes it again. */
export function lookUpLibrary(name: string, symbol: string): LibraryLookUp {
  const [result, text] = addon.libraryLookUp(name, symbol);
  if (result === 0) return { state: 'found', path: text };
  // -ENOENT: it did not open; -ENOSYS: it did, and lacks the symbol.
  return { state: result === -2 ? 'absent' : 'symbol-missing', reason: text };
}
