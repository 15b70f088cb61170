import assert from 'node:assert/strict';
import { test } from 'node:test';
import { directRows } from './direct.ts';

test('rows of direct connections have their thresholds and goals', () => {
  assert.deepEqual(
    directRows.map(({ id, better, threshold, goal }) => [id, better, threshold, goal]),
    [
      ['direct.redis.10', 'higher', { plain: 2, ctl: 1.5 }, { plain: 6, ctl: 4 }],
      ['direct.redis.30', 'higher', { plain: 2.5, ctl: 2 }, { plain: 7, ctl: 5 }],
      ['direct.redis.100', 'higher', { plain: 3, ctl: 2 }, { plain: 10, ctl: 6 }],
      ['direct.redis.400', 'higher', { plain: 3, ctl: 2 }, { plain: 10, ctl: 7 }],
      ['direct.redis.p16', 'higher', { plain: 1 }, { plain: 1.8 }],
      ['direct.rtt.64', 'lower', { plain: 0.4 }, { plain: 0.15 }],
      ['direct.rtt.2k', 'lower', { plain: 0.4 }, { plain: 0.15 }],
      ['direct.bulk.1', 'higher', { plain: 1.5 }, { plain: 2.5 }],
      ['direct.bulk.4', 'higher', { plain: 1.5 }, { plain: 2.5 }],
      ['direct.connects', 'higher', { plain: 0.8 }, { plain: 0.98 }],
      ['direct.busy', 'higher', { plain: 1.5 }, { plain: 2.5 }],
      ['direct.cpu', 'lower', { plain: 0.5 }, { plain: 0.15 }],
      ['direct.kill', 'lower', 0, 0],
      ['direct.redis.30@tcp', 'higher', { plain: 1.2 }, { plain: 3 }],
      ['direct.redis.100@tcp', 'higher', { plain: 1.5 }, { plain: 5 }],
      ['direct.bulk.1@tcp', 'higher', { plain: 0.8 }, { plain: 1 }],
      ['direct.local.redis', 'higher', { plain: 5 }, { plain: 12 }],
      ['direct.local.rtt', 'lower', { plain: 0.3 }, { plain: 0.05 }],
    ],
  );
});
