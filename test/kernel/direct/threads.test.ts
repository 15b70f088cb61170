// Tests that a thread that waits for a connection wakes up when another one has it promoted
// meanwhile.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { compile } from '../steering/compile.ts';

const ROUNDS = 20;
/** Far above what it takes: a wait that is not woken never ends. */
const TIMEOUT_MS = 60_000;

describe('a thread waits while another one has the connection promoted', { concurrency: false }, () => {
  const program = compile([join(import.meta.dirname, 'threads/main.c')]);
  for (const wait of ['poll', 'ppoll', 'select', 'pselect', 'epoll', 'recv']) {
    test(wait, async (t) => {
      using folder = temporaryFolder('threads');
      const socketPath = join(folder.path, 'direct');
      using _server = DirectServer.start({ socketPath, ringBytes: 65_536, memoryBytes: 2 ** 24 });
      const env = { ...process.env, ...directEnvironment(process.env, directLibrary(), socketPath) };
      const run = promisify(execFile)(program, [wait, String(ROUNDS)], { env, timeout: TIMEOUT_MS });
      const { stdout } = await run;
      t.diagnostic(stdout.trim());
      assert.match(stdout, new RegExp(`^${ROUNDS} woken, `));
    });
  }
});
