import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { AreaAllocator, PAGE_BYTES } from './area-allocator.ts';

const PAGES = 64;
const START = 16 * PAGE_BYTES;

describe('the parts of a shared area', () => {
  test('invalid sizes, an area of broken pages, and parts that were never allocated are refused', () => {
    assert.throws(() => new AreaAllocator(1, PAGE_BYTES), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => new AreaAllocator(0, PAGE_BYTES + 1), { code: 'MILLRACE_ERR_USAGE' });
    const area = new AreaAllocator(0, PAGE_BYTES);
    for (const size of [0, -1, 1.5, Number.NaN])
      assert.throws(() => area.allocate(size), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => area.free(0), { code: 'MILLRACE_ERR_USAGE' });
    const offset = area.allocate(1);
    assert.throws(() => area.allocate(1), { code: 'ENOMEM', message: /4096 of the 4096 that a guest shares are used/ });
    area.free(offset);
    assert.throws(() => area.free(offset), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('never overlap, stay inside, and are one hole again when all are free', () => {
    const step = fc.record({
      isFree: fc.boolean(),
      pick: fc.nat(),
      sizeBytes: fc.integer({ min: 1, max: 9 * PAGE_BYTES }),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 120 }), (steps) => {
        const area = new AreaAllocator(START, PAGES * PAGE_BYTES);
        const used: { offset: number; sizeBytes: number }[] = [];
        for (const { isFree, pick, sizeBytes } of steps) {
          if (isFree && used.length > 0) {
            const [gone] = used.splice(pick % used.length, 1);
            area.free(gone?.offset ?? 0);
          } else if (!isFree) {
            const most = Math.max(0, ...area.holes.map((hole) => hole.sizeBytes));
            if (most < sizeBytes) assert.throws(() => area.allocate(sizeBytes), { code: 'ENOMEM' });
            else used.push({ offset: area.allocate(sizeBytes), sizeBytes });
          }
          check(area, used);
        }
        for (const { offset } of used) area.free(offset);
        assert.deepEqual(area.holes, [{ offset: START, sizeBytes: PAGES * PAGE_BYTES }]);
      }),
    );
  });
});

function check(area: AreaAllocator, used: readonly { offset: number; sizeBytes: number }[]): void {
  const owner = new Map<number, string>();
  const claim = (offset: number, sizeBytes: number, who: string): void => {
    assert.equal(offset % PAGE_BYTES, 0);
    for (let page = offset / PAGE_BYTES; page * PAGE_BYTES < offset + sizeBytes; page++) {
      assert.equal(owner.get(page), undefined, `page ${page} has two owners`);
      owner.set(page, who);
    }
  };
  for (const { offset, sizeBytes } of used) claim(offset, sizeBytes, 'used');
  for (const [index, { offset, sizeBytes }] of area.holes.entries()) {
    claim(offset, sizeBytes, 'free');
    const next = area.holes[index + 1];
    assert.ok(next === undefined || offset + sizeBytes < next.offset, 'holes that touch are one');
  }
  assert.equal(owner.size, PAGES);
  assert.deepEqual([Math.min(...owner.keys()), Math.max(...owner.keys())], [16, 16 + PAGES - 1]);
}
