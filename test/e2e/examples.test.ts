import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);

/** What each example must print. */
const expected: Readonly<Record<string, RegExp>> = {
  'remote-memory.ts': /^the other process wrote: "hello from another process", and counted to 1000\n$/,
};

describe('the examples', () => {
  test('are all run here', () => {
    assert.deepEqual(globSync('*.ts', { cwd: join(root, 'examples') }).sort(), Object.keys(expected).sort());
  });

  for (const [name, output] of Object.entries(expected)) {
    for (const device of ['soft-shm', 'soft-tcp']) {
      test(`${name} does what it says on ${device}`, async () => {
        const env = { ...process.env, DEVICE: device };
        const { stdout, stderr } = await run(process.execPath, [join('examples', name)], {
          cwd: root,
          env,
          timeout: 20_000,
        });
        assert.match(stdout, output);
        assert.equal(stderr, '');
      });
    }
  }
});
