import assert from 'node:assert/strict';
import { mkdtempDisposable, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { parse } from 'yaml';
import { runCaptured } from './fixtures/captured-world.ts';

async function configFile(text: string): Promise<{ readonly path: string } & AsyncDisposable> {
  const folder = await mkdtempDisposable(join(tmpdir(), 'millrace-config-'));
  const path = join(folder.path, 'c.yaml');
  await writeFile(path, text);
  return { path, [Symbol.asyncDispose]: () => folder.remove() };
}

describe('millrace config', () => {
  test('a file that is not there is one line and a usage error', async () => {
    const { code, stdout, stderr } = await runCaptured(['config', 'check', '/does/not/exist']);
    assert.equal(code, 2);
    assert.equal(stdout, '');
    assert.equal(stderr, 'millrace: read the config /does/not/exist: ENOENT\n');
  });

  test('check tells all problems, each starting with its place', async () => {
    await using file = await configFile('nod: a\nlanes: 65\n');
    for (const command of ['check', 'show']) {
      const { code, stdout, stderr } = await runCaptured(['config', command, file.path]);
      assert.equal(code, 2);
      assert.equal(stdout, '');
      assert.deepEqual(stderr.split('\n'), [
        `${file.path}:1:1: nod: there is no such key (did you mean node?); correct it or leave it out`,
        `${file.path}:2:8: lanes: 65 does not fit; give auto or a whole number from 1 to 64`,
        '',
      ]);
    }
  });

  test('check says ok', async () => {
    await using file = await configFile('node: a\n');
    const { code, stdout, stderr } = await runCaptured(['config', 'check', file.path]);
    assert.deepEqual([code, stdout, stderr], [0, `${file.path}: ok\n`, '']);
  });

  test('show has the defaults, by the environment of the command, and no password', async () => {
    await using file = await configFile('node: a\ninsecure: true\netcd: { username: u, password: secret }\n');
    const env = { MILLRACE_RUN_DIR: '/tmp/r' };
    const plain = await runCaptured(['config', 'show', file.path], { env });
    assert.equal(plain.code, 0);
    const shown = parse(plain.stdout);
    assert.equal(shown.channel.ringBytes, '4MiB');
    assert.equal(shown.api.socket, '/tmp/r/millrace.sock');
    assert.equal(shown.etcd.password, '********');
    const json = await runCaptured(['config', 'show', file.path, '--json'], { env });
    assert.deepEqual(JSON.parse(json.stdout), { v: 1, path: file.path, config: shown });
  });

  test('schema is a JSON schema', async () => {
    const { code, stdout } = await runCaptured(['config', 'schema']);
    assert.equal(code, 0);
    assert.match(JSON.parse(stdout).$schema, /json-schema\.org/);
  });
});
