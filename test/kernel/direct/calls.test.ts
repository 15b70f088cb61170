// Row by row of direct/calls.def: an emulated function leaves the connection direct, one that
// demotes leaves it to TCP, and both have the right result.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { CallsProgram, callKinds } from './calls-program.ts';

const kinds = callKinds();
/** Needs a stream of a kind that no program can make. */
const untried = ['_IO_proc_open'];
/** Not defined by the library, and yet its affair: the child has the connection as well. */
const noticed = ['fork', '__fork', 'vfork', '__vfork'];
const tried = new Map(
  [...kinds].filter(([name, kind]) => (kind !== 'PASSES' || noticed.includes(name)) && !untried.includes(name)),
);
/** In musl only, and in the library. */
const absent = ['posix_close'];
/**
 * They read by the kernel alone. What waits in the ring comes by TCP when the other program makes
 * its next call; here it makes none (docs/direct.md).
 */
const late = [
  'aio_read',
  'aio_read64',
  'eventfd_read',
  'lio_listio',
  'lio_listio64',
  'preadv2',
  'preadv64v2',
  'splice',
  'syscall',
];
const memoryBytes = 64 * 1024 * 1024;

describe('functions that take a socket', () => {
  const program = new CallsProgram();
  const wrong = (results: ReadonlyMap<string, string>, right: string): string[] =>
    [...results]
      .filter(([name, said]) => said !== (absent.includes(name) && right === 'ok' ? 'absent' : right))
      .map((row) => row.join(': '));

  test('each one that the library defines is tried', async () => {
    assert.deepEqual(await program.list(), [...tried.keys()].sort());
  });

  test('the library defines those that it emulates and those that demote, and no others', () => {
    const symbols = execFileSync('nm', ['--dynamic', '--defined-only', directLibrary()], { encoding: 'utf8' });
    const defined = [...symbols.matchAll(/ [TWi] (\w+)$/gm)].map(([, name = '']) => name);
    const expected = [...kinds].filter(([, kind]) => kind !== 'PASSES').map(([name]) => name);
    assert.deepEqual(defined.filter((name) => !name.startsWith('millrace_')).sort(), expected.sort());
  });

  test('without the library each has the result that is expected with it', async () => {
    assert.deepEqual(wrong(await program.run({}, tried), 'ok'), []);
  });

  test('on a direct connection each has the right result, and it is direct or not after that', async () => {
    using folder = temporaryFolder('calls');
    const socketPath = join(folder.path, 'calls.direct');
    using _ = DirectServer.start({ socketPath, ringBytes: 64 * 1024, memoryBytes });
    const rows = new Map([...tried].filter(([name]) => !late.includes(name)));
    const results = await program.run(directEnvironment({}, directLibrary(), socketPath), rows);
    assert.deepEqual(wrong(results, 'ok direct'), []);
  });
});
