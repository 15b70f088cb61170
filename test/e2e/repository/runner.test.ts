// Tests of the test runner: what it counts, prints, refuses and runs at once.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';

const root = join(import.meta.dirname, '../../..');

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
  // Two that share a process, and one that has its own: each says in which process it runs.
  const processes = join(dir, 'processes');
  const telling = (name: string): string => `
    import { appendFileSync } from 'node:fs';
    import { after } from 'node:test';
    after(() => appendFileSync('${processes}', 'after ${name}\\n'));
    test('works', () => appendFileSync('${processes}', '${name} ' + process.pid + '\\n'));`;
  add('src/shared/a.test.ts', telling('a'));
  add('src/shared/deeper/b.test.ts', telling('b'));
  add('src/shared/own.test.ts', `// What it is for.\n// Runs in a process of its own: it counts.\n${telling('own')}`);
  add('src/mixed/bad.test.ts', "describe('a suite', () => test('breaks', () => assert.equal(1, 2)));\n");
  add('src/mixed/empty.test.ts', 'void describe;\n');
  add('src/mixed/good.test.ts', "test('works', () => {});\n");
  add('src/mixed/throws.test.ts', "test('works', () => {});\nthrow new Error('no set-up');\n");
  add('src/dying/a.test.ts', "test('works', () => {});\n");
  add(
    'src/dying/b.test.ts',
    "test('waits', async () => {\n  await new Promise(setImmediate);\n  process.exit(3);\n});\n",
  );
  add('src/dying/c.test.ts', "test('works', () => {});\n");
  // Each says when it ran, and the one that runs alone looks that nobody else did.
  const [started, ended] = [join(dir, 'started'), join(dir, 'ended')];
  const busy = (name: string): string => `
    import { appendFileSync } from 'node:fs';
    import { setTimeout } from 'node:timers/promises';
    test('works', async () => {
      appendFileSync('${started}', '${name}');
      await setTimeout(100);
      appendFileSync('${ended}', '${name}');
    });`;
  add('src/busy/one.test.ts', busy('1'));
  add('src/busy/two.test.ts', busy('2'));
  add(
    'src/busy/alone.test.ts',
    `// What it is for. Runs alone: it measures.
    import { readFileSync } from 'node:fs';
    test('works', () => {
      for (const file of ['${started}', '${ended}']) assert.deepEqual([...readFileSync(file, 'utf8')].sort(), ['1', '2']);
    });`,
  );
  add('src/endless/endless.test.ts', "test('works', () => {});\nsetInterval(() => {}, 1000);\n");
  const runWith = (more: NodeJS.ProcessEnv, ...words: string[]): { status: number | null; out: string } => {
    // Node refuses to run a test runner inside a test unless this is unset.
    const { NODE_TEST_CONTEXT: _, ...env } = { ...process.env, ...more };
    const result = spawnSync(process.execPath, ['tools/test.ts', ...words], { cwd: dir, env, encoding: 'utf8' });
    return { status: result.status, out: result.stdout + result.stderr };
  };
  const run = (...words: string[]): { status: number | null; out: string } => runWith({}, ...words);

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

  test('ends a process that tells nothing any more and does not end, and fails', () => {
    const { status, out } = runWith({ MILLRACE_TEST_SILENCE_MS: '3000' }, 'src/endless');
    assert.equal(status, 1, out);
    assert.match(out, /endless\.test\.ts: its process did not end, and told of no test for 3 s/);
  });

  test('runs the files of a folder in one process, but for those that say that they need their own', () => {
    const { status, out } = run('src/shared');
    assert.equal(status, 0, out);
    assert.match(out, /^unit: 3 passed, 0 failed/m);
    for (const file of ['a', 'deeper/b', 'own']) assert.match(out, new RegExp(`1 tests  src/shared/${file}.test.ts`));
    const lines = readFileSync(processes, 'utf8').split('\n');
    const pidOf = (name: string): string | undefined =>
      lines.find((line) => line.startsWith(`${name} `))?.split(' ')[1];
    assert.equal(pidOf('a'), pidOf('b'));
    assert.notEqual(pidOf('a'), pidOf('own'));
    // What a file does after its tests is done before the next one's.
    const order = lines.map((line) => line.replace(/\d+/, '').trim());
    assert.ok(order.indexOf('after a') < order.indexOf('b'), order.join());
  });

  test('of files that share a process, names the one that fails, throws or has no tests', () => {
    const { status, out } = run('src/mixed');
    assert.equal(status, 1);
    assert.match(out, /✖ src\/mixed\/bad\.test\.ts:3: breaks[\s\S]*1 !== 2/);
    assert.match(out, /✖ src\/mixed\/empty\.test\.ts: it has no tests/);
    assert.match(out, /✔ .* 1 tests {2}src\/mixed\/good\.test\.ts/);
    assert.match(out, /✖ src\/mixed\/throws\.test\.ts: an error outside of its tests\n.*no set-up/);
    assert.match(out, /^unit: 1 passed, 4 failed/m);
  });

  test('a file that ends the process that it shares fails, and so do those that did not run to their end', () => {
    const { status, out } = run('src/dying');
    assert.equal(status, 1);
    for (const file of ['b', 'c']) assert.match(out, new RegExp(`✖ src/dying/${file}.test.ts: it did not finish`), out);
  });

  test('prints why a test was skipped', () => {
    const { status, out } = run('src/skip');
    assert.equal(status, 0);
    assert.match(out, /skipped src\/skip\/skip\.test\.ts: waits: no such hardware/);
    assert.match(out, /^total: 1 passed, 0 failed, 1 skipped$/m);
  });

  test('fails with a tier that ran nothing', () => {
    const { status, out } = run('--tier', 'kernel');
    assert.equal(status, 1);
    assert.match(out, /kernel: 0 passed, 1 failed, 0 skipped \(a tier that ran nothing has failed\)/);
  });

  test('refuses words that match no test', () => {
    const { status, out } = run('kernl');
    assert.equal(status, 2);
    assert.match(out, /no test matches 'kernl'; tiers are: check unit/);
  });

  test('refuses a tier that there is not', () => {
    const { status, out } = run('--tier', 'unti');
    assert.equal(status, 2);
    assert.match(out, /there is no tier 'unti'; tiers are: check unit/);
  });

  test('gives a file that runs alone the machine for itself', () => {
    const { status, out } = run('src/busy');
    assert.equal(status, 0, out);
    assert.match(out, /^unit: 3 passed/m);
  });
});
