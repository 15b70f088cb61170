// Tests that direct connections are measured where they happen, and that the bench knows when they
// did not.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { DirectWorld } from '../../../workbench/bench/direct-world.ts';
import { SteerPeers } from '../../../workbench/bench/steer-peers.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const millrace = join(import.meta.dirname, '../../../millrace');

test('connections that took the other path give an error in place of a figure', { skip }, async () => {
  const signal = AbortSignal.timeout(30_000);
  await using world = await DirectWorld.create({ signal });
  await using direct = await SteerPeers.start(world.hosts.direct, [7102], signal);
  await using plain = await SteerPeers.start(world.hosts.plain, [7101], signal);
  const job = { kind: 'rtt', amount: 64, ms: 50 } as const;
  const [askDirect, askPlain] = [() => direct.run(job, 7102, signal), () => plain.run(job, 7101, signal)];
  await assert.rejects(world.measured('direct', 1, askPlain), {
    code: 'MILLRACE_ERR_FAILED',
    message: /^measure direct connections: on the path 'direct' 0 were promoted and 0 declined$/,
  });
  await assert.rejects(world.measured('plain', 0, askDirect), { message: /on the path 'plain' 1 were promoted/ });
  assert.ok((await world.measured('direct', 1, askDirect)) > 0);
  assert.ok((await world.measured('plain', 0, askPlain)) > 0);
});

test('rows on one host and on two give the figures of all rivals in every round', { skip }, async () => {
  const ids = ['direct.redis.10', 'direct.bulk.1@tcp', 'direct.local'];
  const { stdout, stderr } = await promisify(execFile)(millrace, ['bench', ...ids, '--trial', '--json']);
  assert.equal(stderr, '');
  const { results } = JSON.parse(stdout);
  assert.deepEqual(
    results.map(({ id, bar, goal }: Record<string, unknown>) => ({ id, bar, goal })),
    [
      { id: 'direct.redis.10', bar: { plain: 2, ctl: 1.5 }, goal: { plain: 6, ctl: 4 } },
      { id: 'direct.bulk.1@tcp', bar: { plain: 0.8 }, goal: { plain: 1 } },
      { id: 'direct.local.redis', bar: { plain: 5 }, goal: { plain: 12 } },
      { id: 'direct.local.rtt', bar: { plain: 0.3 }, goal: { plain: 0.05 } },
    ],
  );
  for (const { rounds, bar } of results) {
    assert.equal(rounds.length, 5);
    for (const round of rounds) {
      for (const name of ['ours', ...Object.keys(bar)]) assert.ok(round[name] > 0, JSON.stringify(round));
    }
  }
});
