// Reserves huge pages for the time of a benchmark.

import { readFileSync, writeFileSync } from 'node:fs';
import { freeHugePages } from '../../src/vortex/index.ts';

const setting = '/proc/sys/vm/nr_hugepages';

/**
 * Reserves what is missing to `count` free ones, if the user may; disposing returns them. The row
 * runs without them too.
 */
export function reserveHugePages(count: number): Disposable {
  const missing = count - freeHugePages();
  if (missing <= 0) return { [Symbol.dispose]: () => {} };
  // The difference is added and subtracted again, because other processes may change the number at
  // the same time.
  const add = (count: number): void => {
    writeFileSync(setting, String(Math.max(0, Number(readFileSync(setting, 'utf8')) + count)));
  };
  try {
    add(missing);
  } catch {
    // Not root: the pool gets ordinary pages.
    return { [Symbol.dispose]: () => {} };
  }
  return { [Symbol.dispose]: () => add(-missing) };
}
