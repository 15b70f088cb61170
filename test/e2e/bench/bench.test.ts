// Tests of `millrace bench`: the rows measure both sides of every round, and the figures are shown.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

const millrace = join(import.meta.dirname, '../../../millrace');
const run = promisify(execFile);

describe('bench', () => {
  test('the native rows measure both sides of every round', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'millrace-plot-'));
    const { stdout, stderr } = await run(millrace, ['bench', 'native.*', '--trial', '--json', '--plot', dir]);
    assert.equal(stderr, '');
    const document = JSON.parse(stdout);
    assert.equal(document.v, 1);
    assert.ok(document.machine.cores >= 1 && document.machine.kernel !== '');
    const ids = document.results.map(({ id }: { id: string }) => id);
    assert.deepEqual(ids, [
      'native.crossing',
      'native.crossing.5',
      'native.epoll.1',
      'native.epoll.64',
      'native.pump.64',
      'native.pump.128k',
    ]);
    for (const { id, ours, against, ratio, rounds, unit } of document.results) {
      assert.equal(unit, 'ns');
      assert.equal(rounds.length, 5);
      assert.ok(ours > 0 && ours < 1e6, `${id}: ${ours} ns`);
      if (id.startsWith('native.crossing')) continue;
      assert.ok(against.native > 0);
      // Far looser than the threshold: this run shares the machine with whatever else it does. The
      // bench itself shows the bar.
      assert.ok(ratio.native > 0.3 && ratio.native < 3, `${id}: ${ratio.native}`);
    }
    assert.deepEqual(readdirSync(dir).sort(), ids.map((id: string) => `${id}.svg`).sort());
    assert.match(readFileSync(join(dir, 'native.pump.64.svg'), 'utf8'), /^<svg /);
    rmSync(dir, { recursive: true });
  });

  test('the table for people names the rival, the ratio and the spread, in less than 45 s a row', async () => {
    const startMs = performance.now();
    const { stdout, stderr } = await run(millrace, ['bench', 'native.epoll.1', '--quick']);
    assert.ok(performance.now() - startMs < 45_000);
    assert.match(stdout, /^id +ours +against +ratio +spread +threshold +goal/);
    assert.match(stdout, /^native\.epoll\.1 +\S+ ns +native \S+ ns +\d/m);
    assert.equal(stderr, '');
  });
});
