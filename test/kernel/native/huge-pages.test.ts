// Tests of memory in huge pages.
// Runs alone: it counts the huge pages of the machine.

import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { test } from 'node:test';
import { UnsupportedError } from '../../../src/errors.ts';
import { SharedMemory } from '../../../src/native/index.ts';

const setting = '/proc/sys/vm/nr_hugepages';

/** Reserves some more for as long as it is open. */
function reserveHugePages(count: number): Disposable {
  const before = Number(readFileSync(setting, 'utf8'));
  writeFileSync(setting, String(before + count));
  const restore = (): void => writeFileSync(setting, String(before));
  if (Number(readFileSync(setting, 'utf8')) < before + count) {
    restore();
    throw new UnsupportedError(`the kernel did not reserve ${count} huge pages`);
  }
  return { [Symbol.dispose]: restore };
}

test('memory of huge pages is mapped with them and given back at close', (context) => {
  try {
    using _reserved = reserveHugePages(4);
    const free = (): number => Number(/HugePages_Free:\s+(\d+)/.exec(readFileSync('/proc/meminfo', 'utf8'))?.[1]);
    const before = free();
    {
      using memory = SharedMemory.create({ sizeBytes: 4 << 20, hugePages: true, populate: true, name: 'huge' });
      new Uint8Array(memory.buffer).fill(7);
      assert.equal(free(), before - 2);
      const maps = readFileSync('/proc/self/smaps', 'utf8');
      assert.match(maps.slice(maps.indexOf('/memfd:huge')), /KernelPageSize: +2048 kB/);
    }
    assert.equal(free(), before);
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    context.skip(error.message);
  }
});
