import assert from 'node:assert/strict';
import { execFile, execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../../..');
const run = promisify(execFile);
const path = '/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const env = { ...process.env, PATH: path };

describe('set-up', () => {
  // A checkout as it is being written, without what set-up makes; node_modules by link, because npm
  // has its own tests.
  const clone = mkdtempSync(join(tmpdir(), 'millrace-setup-'));
  const files = execFileSync('git', ['ls-files', '-co', '--exclude-standard'], { cwd: root, encoding: 'utf8' });
  for (const file of files.split('\n')) {
    if (/^(native|bpf|direct|tools|millrace$|package)/.test(file) && existsSync(join(root, file)))
      cpSync(join(root, file), join(clone, file));
  }
  chmodSync(clone, 0o755); // somebody else runs it, too
  cpSync(join(root, 'node_modules'), join(clone, 'node_modules'), { recursive: true, verbatimSymlinks: true });
  after(() => rmSync(clone, { recursive: true, force: true }));
  const setup = (extra: Record<string, string> = {}) =>
    run('node', ['tools/setup.mjs'], { cwd: clone, env: { ...env, ...extra } });

  test('before it, the command says what to run', () => {
    const result = spawnSync('./millrace', ['doctor'], { cwd: clone, encoding: 'utf8' });
    assert.equal(result.status, 4);
    assert.match(result.stderr, /not set up yet; run: npm run setup/);
  });

  test('two at once do not break each other, and each step is done once', async () => {
    const results = await Promise.all([setup(), setup(), setup()]);
    const lines = results.flatMap(({ stderr }) => stderr.split('\n')).filter((line) => line !== '');
    assert.equal(lines.filter((line) => line.includes('addon (release)')).length, 1);
    assert.ok(
      lines.every((line) => /^set-up: .* … done in \d+\.\d s$/.test(line)),
      lines.join('\n'),
    );
    assert.ok(existsSync(join(clone, 'build/release/millrace.node')));
    assert.ok(existsSync(join(clone, 'build/bpf/probe.bpf.o')));
    assert.ok(existsSync(join(clone, 'build/direct/libmillrace-direct.so')));
  });

  test('a second run does nothing, in less than 2 s', async () => {
    const before = statSync(join(clone, 'build/release/millrace.node')).mtimeMs;
    const startMs = performance.now();
    const { stdout, stderr } = await setup();
    assert.ok(performance.now() - startMs < 2000);
    assert.equal(stdout + stderr, '');
    assert.equal(statSync(join(clone, 'build/release/millrace.node')).mtimeMs, before);
  });

  test('a changed source builds what depends on it and nothing else', async () => {
    // One unit will do from here on: all of them have been compiled above.
    const units = readdirSync(join(clone, 'native')).filter((file) => file.endsWith('.c'));
    for (const unit of units.slice(1)) rmSync(join(clone, 'native', unit));
    writeFileSync(join(clone, 'native/extra.h'), '// changed\n');
    const { stderr } = await setup();
    assert.match(stderr, /addon \(release\)/);
    assert.match(stderr, /addon \(asan\)/);
    assert.doesNotMatch(stderr, /BPF|npm/);
  });

  test('a source that does not compile shows the error and keeps the last good build', async () => {
    writeFileSync(join(clone, 'native/broken.c'), 'int broken(\n');
    await assert.rejects(setup(), { code: 1, stderr: /set-up failed: cc ended with status 1[\s\S]*broken\.c/ });
    assert.ok(existsSync(join(clone, 'build/release/millrace.node')));
    rmSync(join(clone, 'native/broken.c'));
    await setup();
  });

  test('packages that are missing and may not be installed are named in the line to run', () => {
    // A dpkg-query that knows no clang-19, and a user who is not root.
    const fake = join(clone, 'fake');
    cpSync(join(root, 'test/e2e/repository/fake-bin'), fake, { recursive: true });
    const result = spawnSync(
      'setpriv',
      ['--reuid=65534', '--regid=65534', '--clear-groups', 'node', 'tools/setup.mjs', '--locked'],
      {
        cwd: clone,
        env: { ...env, PATH: `${fake}:${path}` },
        encoding: 'utf8',
      },
    );
    assert.equal(result.status, 1);
    assert.match(result.stderr, /sudo apt-get install -y --no-install-recommends clang-19$/m);
  });
});
