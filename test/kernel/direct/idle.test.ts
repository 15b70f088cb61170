// Tests that rings of a direct connection that is not used give their pages back, and are used
// again afterwards.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fstatSync, readdirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { compile } from '../steering/compile.ts';

const ROUNDS = 3;
/** Of the rings of all arenas that this process has made; their words have less. */
const WORDS_BYTES = 64 * 1024;

function arenaBytes(): number {
  let bytes = 0;
  for (const fd of readdirSync('/proc/self/fd')) {
    try {
      if (readlinkSync(`/proc/self/fd/${fd}`).startsWith('/memfd:direct arena'))
        bytes += fstatSync(Number(fd)).blocks * 512;
    } catch {
      // The descriptor that the folder was read by.
    }
  }
  return bytes;
}

test('idle rings give their pages back, and carry the right bytes afterwards', async () => {
  const program = compile([join(import.meta.dirname, 'idle/main.c')]);
  using folder = temporaryFolder('idle');
  const socketPath = join(folder.path, 'direct');
  using server = DirectServer.start({ socketPath, ringBytes: 65_536, memoryBytes: 2 ** 24, trimMs: 100 });
  const env = { ...process.env, ...directEnvironment(process.env, directLibrary(), socketPath) };
  const child = spawn(program, [], { env, stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  await eventually('the connection is direct', () => server.status.connections === 1);
  for (let round = 0; round < ROUNDS; round++) {
    child.stdin.write('\n');
    assert.equal((await lines.next()).value, `round ${round}`);
    if (round === ROUNDS - 1) break;
    // Both rings had most of their pages a moment ago.
    await eventually('the rings have given their pages back', () => arenaBytes() < WORDS_BYTES);
  }
  assert.deepEqual(await ended, [0, null]);
});
