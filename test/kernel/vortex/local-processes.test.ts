import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, test } from 'node:test';
import { createLocalStream, openLocal, openLocalConsumer, serveLocal } from '../../../src/vortex/index.ts';
import { reserveHugePages } from '../../../workbench/bench/huge-pages.ts';

const MIB = 2 ** 20;
const skip = process.getuid?.() !== 0 && 'needs root for a userfaultfd that serves system calls';
const program = join(import.meta.dirname, 'process.ts');

describe('a stream between two processes', { skip }, () => {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-vortex-'));
  after(() => rmSync(dir, { recursive: true, force: true }));

  const start = (role: string, path: string, plan: string): ChildProcess =>
    spawn(process.execPath, [program, role, path, plan], { stdio: ['ignore', 'pipe', 'inherit'] });

  /** The server makes its socket when it is ready. */
  async function opened(path: string) {
    while (!existsSync(path)) await new Promise((resolve) => setTimeout(resolve, 10));
    return await openLocal(path);
  }

  test('a path that is taken, a path where nobody is and an abort are errors that leave nothing', async () => {
    const before = readdirSync('/proc/self/fd').length;
    const path = join(dir, 'taken');
    writeFileSync(path, '');
    await assert.rejects(serveLocal(path), { code: 'EEXIST' });
    await assert.rejects(openLocal(join(dir, 'nobody')), { code: 'ENOENT' });
    const signal = AbortSignal.timeout(20);
    await assert.rejects(serveLocal(join(dir, 'abort'), { signal }), { name: 'TimeoutError' });
    assert.equal(existsSync(join(dir, 'abort')), false);
    assert.ok(readdirSync('/proc/self/fd').length <= before);
  });

  test('only the user may open what is served', async () => {
    const path = join(dir, 'mode');
    const serving = serveLocal(path, { sizeBytes: 10 });
    assert.equal(statSync(path).mode & 0o777, 0o600);
    await using consumer = await openLocal(path);
    await using producer = await serving;
    assert.equal(existsSync(path), false);
    producer.bytes.fill(6);
    producer.finish();
    assert.deepEqual([...consumer.bytes], Array(10).fill(6));
    await Promise.all([consumer.done(), producer.done()]);
  });

  test('32 GiB go through a pool of 32 MiB, and neither process grows by more than the pool and 64 MiB', async () => {
    using _pages = reserveHugePages(16);
    const path = join(dir, 'long');
    const producer = start('producer', path, 'long');
    while (!existsSync(path)) await new Promise((resolve) => setTimeout(resolve, 10));
    const consumer = start('consumer', path, 'long');
    const ends = [producer, consumer].map(async (child) => {
      assert.ok(child.stdout);
      const [printed, [code, signal]] = await Promise.all([text(child.stdout), once(child, 'exit')]);
      assert.deepEqual([code, signal], [0, null]);
      const { grownMib } = JSON.parse(printed);
      assert.ok(grownMib < 32 + 64, `${grownMib} MiB`);
    });
    await Promise.all(ends);
  });

  test('a consumer that is killed frees the producer from its fault', async () => {
    const path = join(dir, 'killed-consumer');
    const serving = serveLocal(path, { sizeBytes: 256 * MIB, blockBytes: MIB });
    const child = start('consumer', path, 'die');
    const exited = once(child, 'exit');
    await using producer = await serving;
    // Blocks this thread until the pager has seen the death.
    producer.bytes.fill(1);
    assert.throws(() => producer.finish(), { code: 'MILLRACE_ERR_VORTEX_PEER_DIED' });
    await assert.rejects(producer.done(), { code: 'MILLRACE_ERR_VORTEX_PEER_DIED' });
    assert.equal((await exited)[1], 'SIGKILL');
  });

  test('a producer that is killed frees the consumer from its fault', async () => {
    const path = join(dir, 'killed-producer');
    const child = start('producer', path, 'die');
    const exited = once(child, 'exit');
    await using consumer = await opened(path);
    assert.equal(consumer.bytes[200 * MIB], 0);
    await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_PEER_DIED' });
    await exited;
  });

  test('who reads block by block hears of the death too', async () => {
    const path = join(dir, 'killed-blocks');
    const child = start('producer', path, 'die-in-blocks');
    const exited = once(child, 'exit');
    await using consumer = await opened(path);
    await assert.rejects(
      async () => {
        for await (const block of consumer.blocks()) block.release();
      },
      { code: 'MILLRACE_ERR_VORTEX_PEER_DIED' },
    );
    await exited;
  });

  test('closing frees a system call of another thread that waits in the window', async () => {
    using stream = createLocalStream(4 * MIB, { blockBytes: MIB });
    const consumer = openLocalConsumer(stream.consumer);
    await using file = await open(join(dir, 'out'), 'w');
    const writing = file.write(consumer.bytes, 0, 2 * MIB).then(
      ({ bytesWritten }) => bytesWritten,
      () => 'refused',
    );
    while (consumer.counters?.faults === 0) await new Promise((resolve) => setTimeout(resolve, 5));
    await consumer.close();
    // Zeroes, or EFAULT from where the window was unmapped: what matters is that it came back.
    assert.ok(['number', 'string'].includes(typeof (await writing)));
  });

  test('a process that exits while one of its threads waits in a fault does exit', async () => {
    const source = `
      import { open } from 'node:fs/promises';
      import { createLocalStream, openLocalConsumer } from ${JSON.stringify(join(import.meta.dirname, '../../../src/vortex/index.ts'))};
      const consumer = openLocalConsumer(createLocalStream(4 * 2 ** 20, { blockBytes: 2 ** 20 }).consumer);
      const file = await open(${JSON.stringify(join(dir, 'exit'))}, 'w');
      void file.write(consumer.bytes).catch(() => {});
      while (consumer.counters.faults === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      process.exit(7);`;
    const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    const [code] = await once(child, 'exit');
    assert.equal(code, 7);
  });
});
