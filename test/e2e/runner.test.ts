import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';

const root = join(import.meta.dirname, '../..');

describe('the test runner', () => {
  // A repository of its own, with tests that fail, skip and do not exist.
  const dir = mkdtempSync(join(tmpdir(), 'millrace-runner-'));
  after(() => rmSync(dir, { recursive: true, force: true }));
  cpSync(join(root, 'tools'), join(dir, 'tools'), { recursive: true });
  symlinkSync(join(root, 'node_modules'), join(dir, 'node_modules'));
  writeFileSync(join(dir, 'package.json'), '{"type":"module"}');
  mkdirSync(join(dir, 'test/kernel'), { recursive: true });
  const head = "import assert from 'node:assert/strict';\nimport { describe, test } from 'node:test';\n";
  const add = (file: string, body: string): void => {
    mkdirSync(dirname(join(dir, file)), { recursive: true });
    writeFileSync(join(dir, file), head + body);
  };
  add('src/good/good.test.ts', "test('works', () => assert.ok(true));\n");
  add('src/bad/bad.test.ts', "describe('a suite', () => test('breaks', () => assert.equal(1, 2)));\n");
  add('src/skip/skip.test.ts', "test('runs', () => {});\ntest('waits', { skip: 'no such hardware' }, () => {});\n");
  add('src/crash/crash.test.ts', "test('starts', () => {});\nprocess.exit(3);\n");
  const run = (...words: string[]): { status: number | null; out: string } => {
    // Node refuses to run a test runner inside a test unless this is unset.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const result = spawnSync(process.execPath, ['tools/test.ts', ...words], { cwd: dir, env, encoding: 'utf8' });
    return { status: result.status, out: result.stdout + result.stderr };
  };

  test('passes with what passes and ends on the line that counts', () => {
    const { status, out } = run('src/good');
    assert.equal(status, 0, out);
    assert.match(out, /^unit: 1 passed, 0 failed, 0 skipped in \d+ s$/m);
    assert.match(out, /\ntotal: 1 passed, 0 failed, 0 skipped\n$/);
  });

  test('fails with a test that fails, and shows it once', () => {
    const { status, out } = run('src/bad');
    assert.equal(status, 1);
    assert.match(out, /src\/bad\/bad\.test\.ts:\d+: breaks[\s\S]*1 !== 2/);
    assert.match(out, /^unit: 0 passed, 1 failed/m);
  });

  test('fails with a file that ends its process', () => {
    assert.equal(run('src/crash').status, 1);
  });

  test('prints why a test was skipped', () => {
    const { status, out } = run('src/skip');
    assert.equal(status, 0);
    assert.match(out, /skipped src\/skip\/skip\.test\.ts: waits: no such hardware/);
    assert.match(out, /^total: 1 passed, 0 failed, 1 skipped$/m);
  });

  test('fails with a tier that ran nothing', () => {
    const { status, out } = run('kernel');
    assert.equal(status, 1);
    assert.match(out, /kernel: 0 passed, 1 failed, 0 skipped \(a tier that ran nothing has failed\)/);
  });

  test('refuses words that match no test', () => {
    const { status, out } = run('kernl');
    assert.equal(status, 2);
    assert.match(out, /no test matches 'kernl'; tiers are: check unit/);
  });
});
