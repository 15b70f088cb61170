// Tests that steering is measured where it happens, and that the bench knows when it did not.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { listInstances } from '../../../src/steering/index.ts';
import { SteerPeers } from '../../../workbench/bench/steer-peers.ts';
import { ports, SteerWorld } from '../../../workbench/bench/steer-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const millrace = join(import.meta.dirname, '../../../millrace');

test('a connection that went by plain TCP gives an error in place of a figure, and the other way round', {
  skip,
}, async () => {
  const signal = AbortSignal.timeout(20_000);
  await using world = await SteerWorld.create('shortcut', signal);
  await using peers = await SteerPeers.start(
    { client: world.host, server: world.host },
    [ports.plain, ports.steered],
    signal,
  );
  const ask = (port: number): Promise<number> => peers.run({ kind: 'rtt', amount: 64, ms: 20 }, port, signal);
  await assert.rejects(
    world.steered(() => ask(ports.plain)),
    { code: 'MILLRACE_ERR_FAILED', message: /^measure shortcut: steered connections went by plain TCP \(noRule 1\)$/ },
  );
  await assert.rejects(
    world.plain(() => ask(ports.steered)),
    { message: /^measure shortcut: plain connections were steered/ },
  );
  assert.ok((await world.steered(ask)) > 0 && (await world.plain(ask)) > 0);
});

test('a row gives both figures of every round and leaves nothing behind', { skip }, async () => {
  const before = listInstances().map(({ name }) => name);
  const { stdout, stderr } = await promisify(execFile)(millrace, ['bench', 'steer.shortcut.rtt', '--trial', '--json']);
  assert.equal(stderr, '');
  const { v, results } = JSON.parse(stdout);
  const [{ id, unit, ours, against, ratio, rounds, bar, goal }, ...others] = results;
  assert.deepEqual({ v, others, id, unit }, { v: 1, others: [], id: 'steer.shortcut.rtt', unit: 'us' });
  assert.deepEqual({ bar, goal }, { bar: { plain: 0.75 }, goal: { plain: 0.5 } });
  assert.equal(rounds.length, 5);
  for (const round of rounds) assert.ok(round.ours > 1 && round.plain > 1, JSON.stringify(round));
  assert.ok(ours > 1 && against.plain > 1);
  // Far looser than the threshold: this run shares the machine with whatever else it does. The
  // bench itself shows that.
  assert.ok(ratio.plain > 0.1 && ratio.plain < 2, `${ratio.plain}`);
  const left = listInstances().filter(({ name }) => name.startsWith('bench-') && !before.includes(name));
  assert.deepEqual(left, []);
});
