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
  await using world = await DirectWorld.create(signal);
  const { host, as } = world;
  const hosts = { client: host, server: host };
  await using direct = await SteerPeers.start(hosts, [7102], signal, 'anywhere', as.direct);
  await using plain = await SteerPeers.start(hosts, [7101], signal, 'anywhere', as.plain);
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

test('both rows give both figures of every round', { skip }, async () => {
  const { stdout, stderr } = await promisify(execFile)(millrace, ['bench', 'direct.local', '--trial', '--json']);
  assert.equal(stderr, '');
  const { results } = JSON.parse(stdout);
  assert.deepEqual(
    results.map(({ id, bar, goal }: Record<string, unknown>) => ({ id, bar, goal })),
    [
      { id: 'direct.local.redis', bar: { plain: 5 }, goal: { plain: 12 } },
      { id: 'direct.local.rtt', bar: { plain: 0.3 }, goal: { plain: 0.05 } },
    ],
  );
  for (const { rounds } of results) {
    assert.equal(rounds.length, 5);
    for (const round of rounds) assert.ok(round.ours > 0 && round.plain > 0, JSON.stringify(round));
  }
});
