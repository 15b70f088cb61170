// Tests that the rows of load.* run, with few peers.
// Runs alone: it measures.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';

const skip = process.getuid?.() !== 0 ? 'needs root' : false;
const millrace = join(import.meta.dirname, '../../../millrace');

test('what peers cost and how long news take is measured', { skip }, async () => {
  const folder = mkdtempSync(join(tmpdir(), 'bench-load-'));
  const env = { ...process.env, MILLRACE_RUN_DIR: join(folder, 'run'), TMPDIR: folder };
  const { stdout } = await promisify(execFile)(millrace, ['bench', 'load.announce', '--trial', '--json'], { env });
  const { results } = JSON.parse(stdout);
  assert.deepEqual(
    results.map(({ id }: { id: string }) => id),
    ['load.announce'],
  );
  const [{ ours, rounds, bar, goal }] = results;
  assert.ok(ours > 0, `${ours} ms`);
  assert.deepEqual([rounds.length, bar, goal], [5, 1000, 100]);
  rmSync(folder, { recursive: true });
});
