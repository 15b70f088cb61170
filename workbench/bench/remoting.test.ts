// The remoting rows run: their processes find each other, and both ways of carrying a write are
// measured.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { measureRow } from './measure.ts';
import { remotingRows } from './remoting.ts';

test('a row measures the same loop natively and remoted', { timeout: 30_000 }, async () => {
  const row = remotingRows.find(({ id }) => id === 'remoting.bw.single');
  assert.ok(row !== undefined);
  const signal = AbortSignal.timeout(30_000);
  const { ours, against } = await measureRow(row, { rounds: 1, roundMs: 50, signal });
  assert.ok(ours > 0);
  assert.ok((against?.native ?? 0) > 0);
});

test('every row says what it measures, once', () => {
  assert.equal(new Set(remotingRows.map(({ id }) => id)).size, remotingRows.length);
  assert.ok(remotingRows.every(({ id, what }) => id.startsWith('remoting.') && what.length > 10));
});
