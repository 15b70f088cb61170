import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { formatSize, isPowerOfTwo, parseSize } from './size.ts';

describe('sizes', () => {
  test('what is no size is not a number', () => {
    for (const text of ['', 'x', '1MB', '1.5MiB', '-1', 'MiB', '1 2', '99999999999999GiB', '1e3']) {
      assert.ok(Number.isNaN(parseSize(text)), text);
    }
    for (const value of [-1, 1.5, Number.NaN, 2 ** 60]) assert.ok(Number.isNaN(parseSize(value)));
  });

  test('numbers and units are bytes', () => {
    assert.equal(parseSize(4096), 4096);
    assert.equal(parseSize('4096'), 4096);
    assert.equal(parseSize('64KiB'), 65_536);
    assert.equal(parseSize('4 MiB'), 4_194_304);
    assert.equal(parseSize('1GiB'), 1_073_741_824);
  });

  test('what was formatted reads as before', () => {
    fc.assert(fc.property(fc.maxSafeNat(), (bytes) => parseSize(formatSize(bytes)) === bytes));
    assert.equal(formatSize(1536), '1536');
    assert.equal(formatSize(3 * 1024), '3KiB');
    assert.equal(formatSize(0), '0');
  });

  test('powers of two', () => {
    assert.deepEqual([0, 1, 2, 3, 4096, 2 ** 40, 2 ** 40 + 1, 1.5, -2].filter(isPowerOfTwo), [1, 2, 4096, 2 ** 40]);
  });
});
