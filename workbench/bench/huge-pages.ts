// Huge pages for as long as a benchmark needs them.

import { readFileSync, writeFileSync } from 'node:fs';
import { freeHugePages } from '../../src/vortex/index.ts';

const setting = '/proc/sys/vm/nr_hugepages';

/** Sees to it that `count` are free, where the user may; gives back what it took. Without them the measurement still runs. */
export function reserveHugePages(count: number): Disposable {
  const missing = count - freeHugePages();
  if (missing <= 0) return { [Symbol.dispose]: () => {} };
  // Added and taken away, not put back to what it was: somebody else may do the same meanwhile.
  const add = (count: number): void => {
    writeFileSync(setting, String(Math.max(0, Number(readFileSync(setting, 'utf8')) + count)));
  };
  try {
    add(missing);
  } catch {
    // Not root: the pool is made of what the user has.
    return { [Symbol.dispose]: () => {} };
  }
  return { [Symbol.dispose]: () => add(-missing) };
}
