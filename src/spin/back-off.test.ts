import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { BackOff } from './back-off.ts';

/** How long a back-off lasts that begins now. */
function lengthOf(backOff: BackOff, nowNs: number, longestNs: number): number {
  backOff.begin(nowNs);
  let [least, most] = [0, longestNs + 1];
  while (most - least > 1) {
    const middle = Math.floor((least + most) / 2);
    if (backOff.isActive(nowNs + middle)) least = middle;
    else most = middle;
  }
  return most;
}

describe('a back-off', () => {
  test('is not active before it has begun', () => {
    assert.equal(new BackOff({ firstNs: 10, longestNs: 80 }).isActive(0), false);
  });

  test('doubles while each begins soon after the last, and is a first one again after a quiet time', () => {
    const gaps = fc.array(fc.nat(200), { minLength: 1, maxLength: 40 });
    const tuning = fc.record({
      firstNs: fc.integer({ min: 1, max: 20 }),
      longestNs: fc.integer({ min: 20, max: 200 }),
    });
    fc.assert(
      fc.property(
        tuning,
        gaps,
        fc.option(fc.integer({ min: 1, max: 200 }), { nil: undefined }),
        (lengths, all, forgetNs) => {
          const { firstNs, longestNs } = lengths;
          const backOff = new BackOff({ ...lengths, ...(forgetNs !== undefined && { forgetNs }) });
          let nowNs = 1000;
          let lastNs = 0;
          for (const gapNs of all) {
            const isAgain = lastNs > 0 && gapNs < (forgetNs ?? lastNs);
            const expectedNs = isAgain ? Math.min(2 * lastNs, longestNs) : firstNs;
            nowNs += gapNs;
            lastNs = lengthOf(backOff, nowNs, longestNs);
            assert.equal(lastNs, expectedNs);
            nowNs += lastNs;
          }
        },
      ),
    );
  });
});
