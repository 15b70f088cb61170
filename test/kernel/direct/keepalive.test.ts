// Tests that the kernel keeps the silent TCP of a direct connection alive, and that the program
// sees its own settings all the same.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { compile } from '../steering/compile.ts';

/** Far above what it takes. */
const TIMEOUT_MS = 60_000;

test('keepalive is on while a connection is direct, and looks as the program has set it', async () => {
  const program = compile([join(import.meta.dirname, 'kept/main.c')]);
  using folder = temporaryFolder('kept');
  const socketPath = join(folder.path, 'direct');
  using _server = DirectServer.start({ socketPath, ringBytes: 65_536, memoryBytes: 2 ** 24 });
  const env = { ...process.env, ...directEnvironment(process.env, directLibrary(), socketPath) };
  const { stdout } = await promisify(execFile)(program, [], { env, timeout: TIMEOUT_MS });
  // On or off, seconds until the first probe, seconds between two, how many.
  assert.deepEqual(stdout.trim().split('\n'), [
    'plain: seen 0 222 33 9, had 0 222 33 9',
    'direct: seen 0 222 33 9, had 1 60 60 127',
    'idle set: seen 0 44 33 9, had 1 60 60 127',
    'on: seen 1 44 33 9, had 1 44 33 9',
    'off: seen 0 44 33 9, had 1 60 60 127',
    'with a limit: seen 0 44 33 9, had 0 44 33 9',
    'plain again: seen 0 44 33 9, had 0 44 33 9',
  ]);
});
