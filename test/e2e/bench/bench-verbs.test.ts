// Tests of the rows that measure verbs.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const millrace = join(import.meta.dirname, '../../../millrace');

test('the verbs rows measure in two processes and leave none behind', async () => {
  const { stdout, stderr } = await promisify(execFile)(millrace, ['bench', 'verbs.shm.*', '--trial', '--json']);
  assert.equal(stderr, '');
  const { results } = JSON.parse(stdout);
  const [bw, lat, post] = results;
  assert.deepEqual([bw.id, lat.id, post.id], ['verbs.shm.bw', 'verbs.shm.lat', 'verbs.shm.post']);
  assert.deepEqual([bw.bar, lat.bar, post.bar], [{ memcpy: 0.8 }, 2, 150]);
  for (const { id, rounds, ours } of results) {
    assert.equal(rounds.length, 5);
    assert.ok(ours > 0, id);
  }
  // Far looser than the bars: this run shares the machine with whatever else it does. The bench
  // itself shows those.
  assert.ok(bw.ratio.memcpy > 0.2 && bw.ratio.memcpy < 3, `${bw.ratio.memcpy}`);
  assert.ok(lat.ours < 100, `${lat.ours} us`);
  assert.ok(post.ours < 2000, `${post.ours} ns`);
});
