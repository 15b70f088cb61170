// Tests of stream memory between threads.
// Runs alone: it measures time.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { createLocalStream, openLocalConsumer, openLocalProducer } from '../../../src/vortex/index.ts';

const KIB = 1024;
const BLOCK = 64 * KIB;
const NOBODY = 65534;
const skip = process.getuid?.() !== 0 && 'needs root for a userfaultfd that serves system calls';
const vortex = join(import.meta.dirname, '../../../src/vortex/index.ts');

describe('threads in a window', { skip }, () => {
  const dir = mkdtempSync(join(tmpdir(), 'millrace-vortex-'));
  chmodSync(dir, 0o755);
  after(() => rmSync(dir, { recursive: true, force: true }));

  /** What a program prints to both streams, and how it ends. */
  async function run(source: string, options: { readonly uid?: number } = {}): Promise<string> {
    const child = spawn(process.execPath, ['--input-type=module', '-e', source], {
      stdio: ['ignore', 'pipe', 'pipe'],
      cwd: dir,
      ...options,
    });
    assert.ok(child.stdout && child.stderr);
    const [out, errors] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'exit')]);
    return (out + errors).trim();
  }

  test('a worker whose starter could not free it from a fault gets no window, and is told why', async () => {
    const inWorker = `
      const { createLocalStream, openLocalProducer } = await import(${JSON.stringify(vortex)});
      try { openLocalProducer(createLocalStream(1).producer).bytes; } catch (error) { console.log(error.code, error.message); }`;
    const answer = await run(`
      import { Worker } from 'node:worker_threads';
      new Worker(${JSON.stringify(`(async () => { ${inWorker} })()`)}, { eval: true });`);
    assert.match(answer, /^MILLRACE_ERR_USAGE .*import 'millrace\/vortex' in that thread/);
  });

  for (const ending of ['is terminated', 'exits']) {
    test(`a worker that ${ending} frees the workers below it as well`, async () => {
      using stream = createLocalStream(16 * BLOCK, { blockBytes: BLOCK });
      const innermost = `
        import { parentPort, workerData } from 'node:worker_threads';
        import { openLocalConsumer } from ${JSON.stringify(vortex)};
        const { bytes } = openLocalConsumer(workerData);
        parentPort.postMessage('touching');
        bytes[0] + bytes[1];`;
      writeFileSync(join(dir, 'innermost.mjs'), innermost);
      const middle = `
        import { parentPort, Worker, workerData } from 'node:worker_threads';
        import ${JSON.stringify(vortex)};
        parentPort.on('message', () => process.exit());
        new Worker(${JSON.stringify(join(dir, 'innermost.mjs'))}, { workerData })
          .on('message', (message) => parentPort.postMessage(message));`;
      writeFileSync(join(dir, 'middle.mjs'), middle);
      const worker = new Worker(join(dir, 'middle.mjs'), { workerData: stream.consumer });
      const exited = once(worker, 'exit');
      await once(worker, 'message');
      const startMs = performance.now();
      if (ending === 'exits') worker.postMessage('exit');
      else await worker.terminate();
      await exited;
      assert.ok(performance.now() - startMs < 2000);
    });
  }

  test('several threads fault at once, at any places the limit allows', async () => {
    const content = Buffer.alloc(24 * BLOCK, 'many hands make light work ');
    writeFileSync(join(dir, 'in'), content);
    await using file = await open(join(dir, 'in'));
    using stream = createLocalStream(content.length, {
      blockBytes: BLOCK,
      poolBlocks: 24,
      revisitBlocks: 7,
      timeoutMs: 5000,
    });
    await using producer = openLocalProducer(stream.producer);
    await using consumer = openLocalConsumer(stream.consumer);
    const [written, read] = [producer.bytes, consumer.bytes];
    const got = Buffer.alloc(content.length);
    // Eight blocks a time, by the threads of Node's pool, the last one first.
    for (let group = 0; group < content.length; group += 8 * BLOCK) {
      const offsets = Array.from({ length: 8 }, (_, index) => group + (7 - index) * BLOCK);
      await Promise.all(offsets.map((offset) => file.read(written, offset, BLOCK, offset)));
      if (group > 0) got.set(read.subarray(group - 8 * BLOCK, group), group - 8 * BLOCK);
    }
    producer.finish();
    got.set(read.subarray(16 * BLOCK), 16 * BLOCK);
    assert.ok(got.equals(content));
    await Promise.all([producer.done(), consumer.done()]);
  });

  test('with clearBlocks what is left unwritten arrives as zeroes, otherwise it may be of an earlier block', async () => {
    for (const clearBlocks of [true, false]) {
      using stream = createLocalStream(16 * BLOCK, {
        blockBytes: BLOCK,
        poolBlocks: 4,
        revisitBlocks: 0,
        timeoutMs: 5000,
        clearBlocks,
      });
      await using producer = openLocalProducer(stream.producer);
      await using consumer = openLocalConsumer(stream.consumer);
      const [written, read] = [producer.bytes, consumer.bytes];
      for (let block = 0; block < 4; block++) written.fill(block + 1, block * BLOCK, (block + 1) * BLOCK);
      assert.equal(read[2 * BLOCK], 3);
      written[4 * BLOCK] = 9;
      written[5 * BLOCK] = 9;
      assert.deepEqual([read[4 * BLOCK], read[4 * BLOCK + 1]], [9, clearBlocks ? 0 : 1]);
    }
  });

  test('a user without privileges has windows too, and is told that system calls are not served', async () => {
    const answer = await run(
      `import { createLocalStream, openLocalConsumer, openLocalProducer } from ${JSON.stringify(vortex)};
       const stream = createLocalStream(100000, { blockBytes: 65536 });
       const [producer, consumer] = [openLocalProducer(stream.producer), openLocalConsumer(stream.consumer)];
       producer.bytes.fill(5);
       producer.finish();
       console.log(producer.servesSystemCalls, consumer.bytes[99999]);
       process.exit();`,
      { uid: NOBODY },
    );
    assert.equal(answer, 'false 5');
  });
});
