import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { measureRow } from './measure.ts';
import { selectRows } from './rows.ts';

const { signal } = new AbortController();

test('the local rows measure, and leave the huge pages as they were', async () => {
  const setting = (): string => readFileSync('/proc/sys/vm/nr_hugepages', 'utf8');
  const before = setting();
  const results = [];
  for (const row of selectRows(['vortex.local', 'vortex.local.faults@64KiB'])) {
    results.push(await measureRow(row, { rounds: 1, roundMs: 20, signal }));
  }
  const [contest, faults] = results;
  assert.ok((contest?.ratio?.array ?? 0) > 0);
  // A fault a block at each end, a few more where two come in one message.
  assert.ok((faults?.ours ?? 0) >= (2 * 1e9) / 65_536);
  assert.equal(setting(), before);
});
