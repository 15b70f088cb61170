import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { globSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { describe, test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../../..');
const run = promisify(execFile);

/** What each example must print. */
const expected: Readonly<Record<string, RegExp>> = {
  'remote-memory.ts': /^the other process wrote: "hello from another process", and counted to 1000\n$/,
  'transfer.ts': /^transfer \d+ brought: "hello from another node"\n$/,
};

/** Two programs that meet. */
const pair = ['vortex-receiver.ts', 'vortex-sender.ts'];

describe('the examples', () => {
  test('are all run here', () => {
    assert.deepEqual(
      globSync('*.ts', { cwd: join(root, 'examples') }).sort(),
      [...Object.keys(expected), ...pair].sort(),
    );
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

  test('what vortex-sender.ts writes, vortex-receiver.ts reads, over TCP and over RDMA', async (t) => {
    for (const device of [undefined, 'soft-shm']) {
      const env = { ...process.env, ...(device === undefined ? {} : { DEVICE: device }) };
      const sender = spawn(process.execPath, ['examples/vortex-sender.ts', '0'], { cwd: root, env });
      t.after(() => sender.kill('SIGKILL'));
      const exited = once(sender, 'exit');
      const lines = createInterface({ input: sender.stdout })[Symbol.asyncIterator]() as AsyncIterator<string, string>;
      const port = /^waiting on port (\d+)$/.exec((await lines.next()).value)?.[1] ?? '';
      const options = { cwd: root, timeout: 20_000 };
      const receiver = await run(process.execPath, ['examples/vortex-receiver.ts', port], options);
      assert.equal(receiver.stdout, 'received sum: 140737479966720\n');
      assert.equal((await lines.next()).value, 'delivered sum: 140737479966720');
      assert.deepEqual(await exited, [0, null]);
    }
  });

  test('vortex-word-count counts every word of a text that is longer than the memory it uses', async () => {
    const options = { cwd: root, timeout: 60_000 };
    const { stdout } = await run(process.execPath, ['examples/vortex-word-count/main.ts', '64'], options);
    assert.match(stdout, /^\d+ words in 64 MiB, most often: ka \d+, lo \d+, mi \d+/);
    assert.match(stdout, /every word was counted as often as it was written\n$/);
    assert.ok(Number(/memory grew by (\d+) MiB/.exec(stdout)?.[1]) < 64, stdout);
  });
});
