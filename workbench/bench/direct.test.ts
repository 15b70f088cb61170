import assert from 'node:assert/strict';
import { test } from 'node:test';
import { directRows } from './direct.ts';

test('rows of direct connections have their thresholds and goals', () => {
  assert.deepEqual(
    directRows.map(({ id, better, threshold, goal }) => [id, better, threshold, goal]),
    [
      ['direct.local.redis', 'higher', { plain: 5 }, { plain: 12 }],
      ['direct.local.rtt', 'lower', { plain: 0.3 }, { plain: 0.05 }],
    ],
  );
});
