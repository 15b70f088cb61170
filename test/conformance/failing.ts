// A request that fails, with two behind it: the first completes with its status, the others are
// flushed.

import assert from 'node:assert/strict';
import type { SendBatch } from '../../src/verbs/index.ts';
import type { Rig } from './rig.ts';

/** `fill` adds request 1. */
export async function failsAndFlushes(
  { left }: Rig,
  fill: (batch: SendBatch) => unknown,
  expected: readonly string[],
): Promise<void> {
  left.post((batch) => {
    fill(batch);
    // Unsignalled, and flushed all the same.
    batch.send(2, 0).sge(...left.at(0, 8));
    batch.send(3).sge(...left.at(0, 8));
  });
  const [first, ...flushed] = await left.sent(3);
  assert.equal(first?.wrId, 1);
  assert.ok(expected.includes(first?.status ?? ''), `got ${first?.status}, expected ${expected.join(' or ')}`);
  assert.deepEqual(
    flushed.map(({ wrId, status }) => `${wrId}:${status}`),
    ['2:WR_FLUSH_ERR', '3:WR_FLUSH_ERR'],
  );
  assert.equal(left.qp.state, 'ERR');
}
