import assert from 'node:assert/strict';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { MillraceError, SystemError, UnsupportedError, UsageError } from '../errors.ts';
import { packageVersion } from '../system/version.ts';
import { exitCodeOf } from './exit-code.ts';
import { runCaptured } from './fixtures/captured-world.ts';
import { painter, table } from './paint.ts';

describe('the command line', () => {
  test('a wrong word is a usage error with the nearest right one', async () => {
    const { code, stdout, stderr } = await runCaptured(['docter']);
    assert.equal(code, 2);
    assert.equal(stdout, '');
    assert.match(stderr, /unknown command 'docter'[\s\S]*Did you mean doctor\?/);
  });

  test('a wrong option is a usage error with the nearest right one', async () => {
    const { code, stderr } = await runCaptured(['doctor', '--jsn']);
    assert.equal(code, 2);
    assert.match(stderr, /unknown option '--jsn'[\s\S]*Did you mean --json\?/);
  });

  test('no command at all shows the help and fails', async () => {
    const { code, stderr } = await runCaptured([]);
    assert.equal(code, 2);
    assert.match(stderr, /Usage: millrace/);
  });

  test('help and version are data and succeed', async () => {
    const help = await runCaptured(['--help']);
    assert.equal(help.code, 0);
    for (const word of ['up', 'doctor', 'lab', 'conn']) assert.match(help.stdout, new RegExp(`^  ${word}`, 'm'));
    const version = await runCaptured(['--version']);
    assert.deepEqual(version, { code: 0, stdout: `${packageVersion()}\n`, stderr: '' });
  });

  test('every command explains itself', async () => {
    const { stdout: help } = await runCaptured(['--help']);
    const names = [...help.matchAll(/^ {2}([a-z]+) /gm)].flatMap(([, name = '']) => (name === 'help' ? [] : [[name]]));
    assert.ok(names.length > 15);
    for (const words of [...names, ...['up', 'down', 'show', 'exec'].map((name) => ['lab', name])]) {
      const { code, stdout } = await runCaptured([...words, '--help']);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`Usage: millrace ${words.join(' ')}`));
    }
  });

  test('each kind of error has its exit code', () => {
    assert.equal(exitCodeOf(new UsageError('x')), 2);
    assert.equal(exitCodeOf(new MillraceError('MILLRACE_ERR_NOT_RUNNING', 'x')), 3);
    assert.equal(exitCodeOf(new UnsupportedError('x')), 4);
    assert.equal(exitCodeOf(new MillraceError('MILLRACE_ERR_PERMISSION', 'x')), 5);
    assert.equal(exitCodeOf(new SystemError(-1, 'bpf')), 5);
    assert.equal(exitCodeOf(new SystemError(-2, 'open')), 1);
    assert.equal(exitCodeOf('x'), 1);
  });

  test('colour is for terminals only, and NO_COLOR turns it off', () => {
    const terminal = Object.assign(new PassThrough(), { isTTY: true });
    assert.equal(painter(terminal, {})('red', 'x'), '\u001b[31mx\u001b[39m');
    assert.equal(painter(terminal, { NO_COLOR: '1' })('red', 'x'), 'x');
    assert.equal(painter(terminal, { TERM: 'dumb' })('red', 'x'), 'x');
    assert.equal(painter(new PassThrough(), {})('red', 'x'), 'x');
  });

  test('a table is as wide as its cells', () => {
    assert.deepEqual(table(['a', 'number'], [['long cell', '1']], ['left', 'right']), [
      'a          number',
      'long cell       1',
    ]);
  });
});
