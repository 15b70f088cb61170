import assert from 'node:assert/strict';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { thisMachine } from './machine.ts';

describe('a machine', () => {
  let root = '';
  before(async () => {
    root = await mkdtemp(join(tmpdir(), 'millrace-machine-'));
    await mkdir(join(root, 'proc'));
    await writeFile(join(root, 'proc/version'), 'none\n');
    await writeFile(join(root, 'broken'), '#!/bin/sh\necho no such option >&2\nexit 3\n');
    await writeFile(join(root, 'endless'), '#!/bin/sh\nexec sleep 60\n');
    await writeFile(join(root, 'plain'), 'not a program\n');
    for (const name of ['broken', 'endless']) await chmod(join(root, name), 0o755);
  });
  after(() => rm(root, { recursive: true }));

  test('a file that is not there is null, and so is a directory', async () => {
    const machine = thisMachine({ root });
    assert.equal(await machine.readText('/proc/nothing'), null);
    assert.equal(await machine.readText('/proc/version/below'), null);
    assert.equal(await machine.list('/sys'), null);
  });

  test('a directory is not read as a file', async () => {
    await assert.rejects(thisMachine({ root }).readText('/proc'), { code: 'EISDIR' });
  });

  test('a command that is not in PATH, or may not be run, is null', async () => {
    const machine = thisMachine({ env: { PATH: root } });
    assert.equal(await machine.run('millrace-no-such-command', []), null);
    assert.equal(await machine.run('plain', []), null);
  });

  test('a command that fails tells what it said', async () => {
    const machine = thisMachine({ env: { PATH: `${root}:/usr/bin:/bin` } });
    assert.deepEqual(await machine.run('broken', []), { isOk: false, stdout: '', stderr: 'no such option\n' });
  });

  test('a command that does not end is ended', async () => {
    const machine = thisMachine({ env: { PATH: `${root}:/usr/bin:/bin` } });
    await assert.rejects(machine.run('endless', []), { message: 'endless did not end within 2 s' });
  });

  test('an abort ends a command', async () => {
    const controller = new AbortController();
    const machine = thisMachine({ env: { PATH: `${root}:/usr/bin:/bin` }, signal: controller.signal });
    const running = machine.run('endless', []);
    controller.abort();
    await assert.rejects(running, { name: 'AbortError' });
  });

  test('files and directories are read below the root', async () => {
    const machine = thisMachine({ root });
    assert.equal(await machine.readText('/proc/version'), 'none\n');
    assert.deepEqual(await machine.list('/proc'), ['version']);
  });
});
