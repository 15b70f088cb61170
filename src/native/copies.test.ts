import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { addon } from './addon.ts';
import { CopyList, SharedMemory } from './index.ts';

describe('lists of copies', () => {
  test('ranges outside their memory and closed memories are refused, and the rest is forgotten', () => {
    using list = new CopyList(8);
    using from = SharedMemory.create({ sizeBytes: 4096 });
    using to = SharedMemory.create({ sizeBytes: 4096 });
    new Uint8Array(from.buffer).fill(7);
    for (const [toOffset, fromOffset, sizeBytes] of [
      [4096, 0, 1],
      [0, 4096, 1],
      [4095, 0, 2],
      [0, 4095, 2],
      [0, 0, 4097],
      [2 ** 32, 0, 1],
      [0, 2 ** 32, 1],
      [2 ** 53 - 1, 0, 1],
    ] as const) {
      list.add(to, toOffset, from, fromOffset, sizeBytes);
      list.add(to, 0, from, 0, 1);
      assert.throws(() => list.run(), RangeError, `${toOffset} ${fromOffset} ${sizeBytes}`);
      list.run();
      assert.equal(new Uint8Array(to.buffer)[0], 0);
    }
    const gone = SharedMemory.create({ sizeBytes: 4096 });
    list.add(to, 0, gone, 0, 1);
    gone.close();
    assert.throws(() => list.run());
    list.add(gone, 0, from, 0, 1);
    assert.throws(() => list.run());
  });

  test('an empty list does nothing, and no list is none', () => {
    using list = new CopyList(1);
    list.run();
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    assert.throws(() => addon.copyRanges(memory.id, 0), RangeError);
    assert.throws(() => addon.copyRanges(memory.id, -1), RangeError);
    assert.throws(() => addon.copyRanges(memory.id, 129), RangeError);
  });

  test('rows of junk throw or stay inside their memories', () => {
    using guard = SharedMemory.create({ sizeBytes: 4096 });
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    using rows = SharedMemory.create({ sizeBytes: 4096 });
    const word = fc.oneof(fc.nat({ max: 4100 }), fc.constantFrom(0, memory.id), fc.nat({ max: 0xffff_ffff }));
    const property = fc.property(fc.array(word, { minLength: 8, maxLength: 16 }), (words) => {
      new Uint32Array(rows.buffer).set(words);
      const ids = new Uint32Array(rows.buffer);
      // Never one of the other mappings: those are not ours to write to.
      ids[1] = ids[1] % 2 === 0 ? memory.id : 0xffff_0000;
      try {
        addon.copyRanges(rows.id, 1);
      } catch (error) {
        assert.ok(error instanceof Error);
      }
    });
    fc.assert(property, { numRuns: 5000, endOnFailure: true });
    assert.ok(new Uint8Array(guard.buffer).every((byte) => byte === 0));
  });

  test('copies are carried out in order, and by themselves when the list is full', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    using other = SharedMemory.create({ sizeBytes: 4096 });
    const copy = fc.record({
      isBack: fc.boolean(),
      to: fc.nat({ max: 4000 }),
      from: fc.nat({ max: 4000 }),
      sizeBytes: fc.nat({ max: 96 }),
    });
    const property = fc.property(
      fc.array(copy, { maxLength: 40 }),
      fc.integer({ min: 1, max: 9 }),
      (copies, capacity) => {
        using list = new CopyList(capacity);
        const here = new Uint8Array(memory.buffer);
        const there = new Uint8Array(other.buffer);
        for (let at = 0; at < 4096; at++) [here[at], there[at]] = [at & 0xff, (at >> 4) & 0xff];
        const [expectedHere, expectedThere] = [here.slice(), there.slice()];
        for (const { isBack, to, from, sizeBytes } of copies) {
          const [source, target] = isBack ? [expectedThere, expectedHere] : [expectedHere, expectedThere];
          target.set(source.slice(from, from + sizeBytes), to);
          list.add(isBack ? memory : other, to, isBack ? other : memory, from, sizeBytes);
        }
        list.run();
        assert.deepEqual([here, there], [expectedHere, expectedThere]);
      },
    );
    fc.assert(property, { numRuns: 200, endOnFailure: true });
  });
});
