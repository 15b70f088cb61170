// Tests of finding programs and collecting their output.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { test } from 'node:test';
import { UnsupportedError } from '../errors.ts';
import { collect, findProgram, requireTool, spawnInCgroup } from './program.ts';

test('a program that is not there is not found', () => {
  assert.equal(findProgram('no-such-program', '/usr/bin:/bin'), null);
  assert.equal(findProgram('/no/such/program'), null);
  assert.equal(findProgram('sh', '/nonexistent'), null);
  assert.equal(findProgram('', '/usr/bin'), null);
});

test('directories and files that are not executable are no programs', () => {
  assert.equal(findProgram('/usr/bin'), null);
  assert.equal(findProgram('/etc/passwd'), null);
  assert.equal(findProgram('bin', '/usr'), null);
});

test('a path is taken from the working directory, a word from PATH', () => {
  assert.equal(findProgram('./sh', '', '/bin'), '/bin/sh');
  assert.equal(findProgram('sh', '/nonexistent:/bin'), '/bin/sh');
  assert.equal(findProgram('sh'), '/bin/sh');
});

test('a missing tool is named together with its package', () => {
  const isClear = (error: unknown): boolean =>
    error instanceof UnsupportedError && /frobnicate.*apt-get install frob-utils/.test(error.message);
  assert.throws(() => requireTool('frobnicate', 'frob-utils'), isClear);
});

test('a cgroup that does not exist keeps the program from running', async () => {
  const result = await collect(spawnInCgroup('/nonexistent', ['echo', 'ran'], {}));
  assert.equal(result.code, 126);
  assert.equal(result.stdout, '');
});

test('a program that ignores its input does not fail the collection', async () => {
  const result = await collect(spawn('true'), 'x'.repeat(10_000_000));
  assert.equal(result.code, 0);
});

test('status, signal and both outputs are collected', async () => {
  assert.deepEqual(await collect(spawn('sh', ['-c', 'cat; echo err >&2; exit 3']), 'in'), {
    code: 3,
    signal: null,
    stdout: 'in',
    stderr: 'err\n',
  });
  assert.deepEqual(await collect(spawn('sh', ['-c', 'kill -9 $$'])), {
    code: null,
    signal: 'SIGKILL',
    stdout: '',
    stderr: '',
  });
});

test('a program that cannot be started rejects', async () => {
  await assert.rejects(collect(spawn('/no/such/program')), { code: 'ENOENT' });
});
