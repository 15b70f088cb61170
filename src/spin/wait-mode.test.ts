import assert from 'node:assert/strict';
import { test } from 'node:test';
import { spinNsOf, type WaitMode } from './wait-mode.ts';

test('an unknown wait mode is refused, and the known ones spin as learnt, always and never', () => {
  assert.throws(() => spinNsOf('often' as WaitMode), { code: 'MILLRACE_ERR_USAGE', message: /mixed, spin, event/ });
  assert.deepEqual([spinNsOf('mixed'), spinNsOf('spin'), spinNsOf('event')], [undefined, Number.POSITIVE_INFINITY, 0]);
});
