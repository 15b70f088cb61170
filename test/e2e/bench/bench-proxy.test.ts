// Tests that the proxy is measured by way of the proxy, and that the bench knows when it was not.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { listLabs } from '../../../src/lab/index.ts';
import { listInstances } from '../../../src/steering/index.ts';
import { startPeers, touchJob } from '../../../workbench/bench/proxy-loads.ts';
import { type ProxyPath, ProxyWorld } from '../../../workbench/bench/proxy-world.ts';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const millrace = join(import.meta.dirname, '../../../millrace');

/**
 * What a bench that has ended leaves of itself: labs of dead owners, and what is pinned for them.
 */
function leftovers(): readonly string[] {
  const dead = listLabs().labs.filter(({ state }) => state === 'dead');
  const labs = dead.map(({ record }) => record.id);
  return listInstances()
    .map(({ name }) => name)
    .filter((name) => labs.some((id) => name.startsWith(id)))
    .concat(labs);
}

test('a connection that took another path gives an error in place of a figure', { skip }, async () => {
  const signal = AbortSignal.timeout(30_000);
  await using world = await ProxyWorld.create({ wire: 'shm', signal });
  await using peers = await startPeers(world, signal);
  const ask = (path: ProxyPath) => (): Promise<number> => peers.run(touchJob, world.addressOf(path), signal);
  await world.carrying(ask('carried'), signal);
  await assert.rejects(world.measured('carried', ask('plain')), {
    code: 'MILLRACE_ERR_FAILED',
    message: 'measure the proxy: 0 connections and 0 bytes were carried (no rule)',
  });
  await assert.rejects(world.measured('haproxy', ask('carried')), {
    message: /^measure the proxy: 1 connections and \d+ bytes of the haproxy path were carried$/,
  });
  for (const path of ['carried', 'plain', 'haproxy'] as const) {
    assert.ok((await world.measured(path, ask(path))) > 0, path);
  }
});

test('a row gives the figures of all three paths, both ratios and both bars, and leaves nothing behind', {
  skip,
}, async () => {
  const before = leftovers();
  const folder = mkdtempSync(join(tmpdir(), 'millrace-test-'));
  try {
    const words = ['bench', 'proxy.rtt.64', '--trial', '--json', '--plot', folder];
    const { stdout, stderr } = await promisify(execFile)(millrace, words);
    assert.equal(stderr, '');
    const { v, results } = JSON.parse(stdout);
    const [{ id, unit, ours, against, ratio, rounds, bar, goal }, ...others] = results;
    assert.deepEqual({ v, others, id, unit }, { v: 1, others: [], id: 'proxy.rtt.64', unit: 'us' });
    assert.deepEqual({ bar, goal }, { bar: { plain: 2.5, haproxy: 0.8 }, goal: { plain: 1, haproxy: 0.4 } });
    assert.equal(rounds.length, 5);
    for (const round of rounds) assert.deepEqual(Object.keys(round).sort(), ['haproxy', 'ours', 'plain']);
    assert.ok(ours > 1 && against.plain > 1 && against.haproxy > 1, JSON.stringify(against));
    // Far looser than the bars: this run shares the machine with whatever else it does.
    assert.ok(ratio.plain > 0.3 && ratio.plain < 100 && ratio.haproxy > 0.05, JSON.stringify(ratio));
    assert.equal(readFileSync(join(folder, 'proxy.rtt.64.svg'), 'utf8').split('<circle').length - 1, 15);
  } finally {
    rmSync(folder, { recursive: true });
  }
  assert.deepEqual(
    leftovers().filter((name) => !before.includes(name)),
    [],
  );
});
