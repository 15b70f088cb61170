// Tests of stream memory inside one process.
// Runs alone: it measures memory and time.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import {
  createLocalStream,
  type LocalHandle,
  openLocalConsumer,
  openLocalProducer,
  type StreamOptions,
} from '../../../src/vortex/index.ts';
import { ledgerWord } from '../../../src/vortex/stream/block-queue.ts';
import { BlockQueue, failureCode } from '../../../src/vortex/stream/index.ts';
import type { EndAnswer, EndOrder } from './end.ts';
import { expectedByte } from './pattern.ts';

const KIB = 1024;
const MIB = 1024 * KIB;
const BLOCK = 64 * KIB;
const skip = process.getuid?.() !== 0 && 'needs root for a userfaultfd that serves system calls';
const endFile = join(import.meta.dirname, 'end.ts');

async function ask(worker: Worker, order: EndOrder): Promise<EndAnswer> {
  const answer = once(worker, 'message');
  worker.postMessage(order);
  return (await answer)[0];
}

/** What a stream may leave behind. */
function held(): Readonly<Record<'fds' | 'threads' | 'mappings', number>> {
  return {
    fds: readdirSync('/proc/self/fd').length,
    threads: readdirSync('/proc/self/task').length,
    mappings: readFileSync('/proc/self/maps', 'utf8').split('/memfd:vortex').length - 1,
  };
}

/** What Node lets go of meanwhile, of its own, is nobody's business. */
function assertNothingLeft(before: ReturnType<typeof held>): void {
  const now = held();
  for (const what of ['fds', 'threads', 'mappings'] as const) {
    assert.ok(now[what] <= before[what], `${now[what]} ${what}, ${before[what]} before`);
  }
}

/**
 * Both ends in this thread: good for as much as the pool holds. The timeout makes a failure of what
 * would hang.
 */
function openPair(sizeBytes: number | undefined, options: StreamOptions = {}) {
  using stream = createLocalStream(sizeBytes, { blockBytes: BLOCK, timeoutMs: 5000, ...options });
  return { producer: openLocalProducer(stream.producer), consumer: openLocalConsumer(stream.consumer) };
}

describe('a stream that is plain memory', { skip }, () => {
  const workers: Worker[] = [];
  before(() => {
    for (let index = 0; index < 4; index++) workers.push(new Worker(endFile));
  });
  after(async () => {
    await Promise.all(workers.map((worker) => worker.terminate()));
  });

  test('a second form, a pool too small, views outside and sizes that differ are refused', async () => {
    assert.throws(() => createLocalStream(1, { poolBlocks: 2 }), { code: 'MILLRACE_ERR_USAGE', message: /poolBlocks/ });
    assert.throws(() => createLocalStream(1, { poolBlocks: 8, revisitBlocks: 4 }), { code: 'MILLRACE_ERR_USAGE' });
    const { producer, consumer } = openPair(100);
    await using _producer = producer;
    await using _consumer = consumer;
    assert.equal(producer.bytes.length, 100);
    assert.equal(producer.array(Float64Array).length, 12);
    assert.throws(() => producer.blocks(), { code: 'MILLRACE_ERR_USAGE', message: /in use as window/ });
    assert.throws(() => producer.view(Uint8Array, 90, 11), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => producer.finish(99), { code: 'MILLRACE_ERR_USAGE' });
    consumer.blocks();
    assert.throws(() => consumer.bytes, { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => consumer.blocks(), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('the consumer sees what was written, whatever the size, the speeds and the revisits', async () => {
    const size = fc.oneof(
      fc.constantFrom(0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 12 * BLOCK),
      fc.integer({ min: 0, max: 20 * BLOCK }),
    );
    const shape = fc.record({
      sizeBytes: size,
      seed: fc.integer({ min: 0, max: 1e6 }),
      revisitBlocks: fc.integer({ min: 0, max: 2 }),
      moreBlocks: fc.integer({ min: 2, max: 6 }),
      readAheadBlocks: fc.integer({ min: 0, max: 2 }),
      eager: fc.constantFrom('both', 'producer', 'consumer', 'none'),
      isSizeKnown: fc.boolean(),
    });
    const run = async ({ sizeBytes, seed, revisitBlocks, moreBlocks, readAheadBlocks, eager, isSizeKnown }: Shape) => {
      const poolBlocks = 2 * revisitBlocks + Math.max(2, readAheadBlocks) + moreBlocks;
      const options = { blockBytes: BLOCK, revisitBlocks, poolBlocks, readAheadBlocks, maxSizeBytes: 64 * BLOCK };
      using stream = createLocalStream(isSizeKnown ? sizeBytes : undefined, options);
      const isEager = (side: string): boolean => eager === 'both' || eager === side;
      const [first, second] = await Promise.all([
        ask(workers[0], { kind: 'fill', handle: stream.producer, sizeBytes, seed, isEager: isEager('producer') }),
        ask(workers[1], { kind: 'check', handle: stream.consumer, sizeBytes, seed, isEager: isEager('consumer') }),
      ]);
      assert.deepEqual([first, second], [{}, { wrongAt: -1 }]);
    };
    type Shape = Parameters<Parameters<typeof fc.asyncProperty<[{ [name in keyof ShapeOf]: ShapeOf[name] }]>>[1]>[0];
    interface ShapeOf {
      readonly sizeBytes: number;
      readonly seed: number;
      readonly revisitBlocks: number;
      readonly moreBlocks: number;
      readonly readAheadBlocks: number;
      readonly eager: string;
      readonly isSizeKnown: boolean;
    }
    await fc.assert(fc.asyncProperty(shape, run), { numRuns: 60 });
  });

  test('a producer that finished may leave at once, and a consumer that was in the last block too', async () => {
    const { producer, consumer } = openPair(3 * BLOCK + 1);
    producer.bytes.fill(8);
    producer.finish();
    await producer.close();
    const { bytes } = consumer;
    assert.ok(bytes.every((byte) => byte === 8));
    await consumer.close();
    assert.equal(bytes.length, 0);
    const next = openPair(3 * BLOCK);
    await using _producer = next.producer;
    next.producer.bytes.fill(1);
    next.producer.finish();
    assert.equal(next.consumer.bytes[2 * BLOCK], 1);
    await next.consumer.close();
    await next.producer.done();
  });

  test('two streams at once do not mix', async () => {
    const sizeBytes = 30 * BLOCK + 5;
    const answers = await Promise.all(
      [11, 97].map(async (seed, index) => {
        using stream = createLocalStream(sizeBytes, { blockBytes: BLOCK });
        const [fill, check] = workers.slice(2 * index, 2 * index + 2);
        return await Promise.all([
          ask(fill, { kind: 'fill', handle: stream.producer, sizeBytes, seed, isEager: true }),
          ask(check, { kind: 'check', handle: stream.consumer, sizeBytes, seed, isEager: false }),
        ]);
      }),
    );
    assert.deepEqual(answers.flat(), [{}, { wrongAt: -1 }, {}, { wrongAt: -1 }]);
  });

  test('system calls read into the window and write out of it', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'millrace-vortex-'));
    try {
      const content = Buffer.alloc(3 * MIB + 123, 'what the kernel copies itself ');
      writeFileSync(join(dir, 'in'), content);
      using stream = createLocalStream(content.length, { blockBytes: BLOCK, revisitBlocks: 2 });
      const order = { sizeBytes: content.length, pieceBytes: BLOCK + 77 };
      const answers = await Promise.all([
        ask(workers[0], { ...order, kind: 'from-file', handle: stream.producer, path: join(dir, 'in') }),
        ask(workers[1], { ...order, kind: 'to-file', handle: stream.consumer, path: join(dir, 'out') }),
      ]);
      assert.deepEqual(answers, [{}, { wrongAt: -1 }]);
      assert.ok(readFileSync(join(dir, 'out')).equals(content));
    } finally {
      rmSync(dir, { recursive: true });
    }
  });

  test('skipped blocks arrive as zeroes, also where an earlier block was', async () => {
    const { producer, consumer } = openPair(24 * BLOCK, { poolBlocks: 8 });
    await using _producer = producer;
    await using _consumer = consumer;
    const [written, read] = [producer.bytes, consumer.bytes];
    written.fill(7, 0, 4 * BLOCK);
    assert.equal(read[BLOCK + 5], 7);
    written[7 * BLOCK] = 9; // blocks 4 to 6 are skipped
    assert.equal(read[5 * BLOCK + 9], 0);
    written[11 * BLOCK] = 1; // and 8 to 10, in whose slots there were sevens
    assert.deepEqual([read[8 * BLOCK], read[9 * BLOCK + 1]], [0, 0]);
    producer.finish();
    consumer.done().catch(() => {});
    await producer.done();
  });

  test('what lies past the end in the last block is never shown', async () => {
    const { producer, consumer } = openPair(undefined, { maxSizeBytes: 64 * BLOCK, poolBlocks: 6 });
    await using _producer = producer;
    await using _consumer = consumer;
    const [written, read] = [producer.bytes, consumer.bytes];
    for (let block = 0; block < 6; block++) {
      written.fill(5, block * BLOCK, (block + 1) * BLOCK);
      if (block > 1) assert.equal(read[(block - 2) * BLOCK], 5);
    }
    producer.finish(5 * BLOCK + 10);
    assert.deepEqual([...read.subarray(5 * BLOCK + 8, 5 * BLOCK + 12)], [5, 5, 0, 0]);
    assert.equal(consumer.sizeBytes, 5 * BLOCK + 10);
  });

  test('coming back behind the limit gives zeroes and fails both ends', async () => {
    const { producer, consumer } = openPair(32 * BLOCK);
    await using _producer = producer;
    await using _consumer = consumer;
    const { bytes } = producer;
    for (let block = 0; block < 5; block++) bytes[block * BLOCK] = 3;
    assert.equal(bytes[3 * BLOCK], 3);
    assert.equal(bytes[0], 0);
    bytes.fill(1, 10 * BLOCK, 30 * BLOCK);
    assert.throws(() => producer.finish(), { name: 'VortexError', code: 'MILLRACE_ERR_VORTEX_BEHIND' });
    await assert.rejects(producer.done(), { code: 'MILLRACE_ERR_VORTEX_BEHIND' });
    assert.throws(() => consumer.bytes, { code: 'MILLRACE_ERR_VORTEX_BEHIND' });
  });

  test('a consumer of a stream of unknown length is told where it ends before it touches too much', async () => {
    using stream = createLocalStream(undefined, { blockBytes: BLOCK, maxSizeBytes: MIB });
    await using consumer = openLocalConsumer(stream.consumer);
    const sizeBytes = 9 * BLOCK + 3;
    const written = ask(workers[0], { kind: 'fill', handle: stream.producer, sizeBytes, seed: 5, isEager: false });
    const { bytes } = consumer;
    let at = 0;
    while (consumer.reaches(at)) assert.equal(bytes[at], expectedByte(at++, 5));
    assert.equal(at, sizeBytes);
    await consumer.done();
    assert.deepEqual(await written, {});
  });

  test('a touch past the end gives zeroes and fails the stream', async () => {
    const { producer, consumer } = openPair(undefined, { maxSizeBytes: MIB });
    await using _producer = producer;
    await using _consumer = consumer;
    producer.bytes[0] = 1;
    const { bytes } = consumer;
    producer.finish(BLOCK);
    assert.deepEqual([bytes[0], bytes[3 * BLOCK]], [1, 0]);
    await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_PAST_END' });
  });

  test('a program that goes on through a failed stream costs neither memory nor mappings', async () => {
    const { producer, consumer } = openPair(20_000 * BLOCK);
    await using _producer = producer;
    await using _consumer = consumer;
    const { bytes } = producer;
    await consumer.close();
    const rssBefore = process.memoryUsage.rss();
    for (let at = 0; at < bytes.length; at += BLOCK) bytes[at] = 1;
    assert.ok(process.memoryUsage.rss() - rssBefore < 32 * MIB);
    assert.ok(held().mappings < 200, `${held().mappings} mappings`);
    await assert.rejects(producer.done(), { code: 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER' });
  });

  test('counters that cannot be fail the stream instead of the process', async () => {
    for (const committed of [9, 2 ** 31 - 1, -1]) {
      using stream = createLocalStream(64 * BLOCK, { blockBytes: BLOCK });
      using queue = BlockQueue.open(stream.producer.parts);
      await using consumer = openLocalConsumer(stream.consumer);
      const { bytes } = consumer;
      queue.ledger.words[ledgerWord.committed] = committed;
      queue.readable.signal();
      assert.equal(bytes[BLOCK], 0);
      await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_PROTOCOL' });
    }
  });

  test('who waits too long for the other end fails with a timeout', async () => {
    const { producer, consumer } = openPair(8 * BLOCK, { timeoutMs: 50 });
    await using _producer = producer;
    await using _consumer = consumer;
    assert.equal(consumer.bytes[0], 0);
    await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_TIMED_OUT' });
  });

  test('a worker that ends without closing its stream fails it for the other end', async () => {
    using stream = createLocalStream(64 * BLOCK, { blockBytes: BLOCK });
    await using consumer = openLocalConsumer(stream.consumer);
    const { bytes } = consumer;
    const worker = new Worker(endFile);
    const exited = once(worker, 'exit');
    worker.postMessage({ kind: 'exit', handle: stream.producer, sizeBytes: 64 * BLOCK } satisfies EndOrder);
    assert.equal(bytes[5 * BLOCK], 0);
    await exited;
    await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_TERMINATED' });
  });

  for (const role of ['producer', 'consumer'] as const) {
    test(`a ${role} terminated in the middle of a fault ends at once and leaves nothing`, async () => {
      const before = held();
      using stream = createLocalStream(1024 * MIB, { blockBytes: BLOCK });
      const handle: LocalHandle = stream[role];
      const worker = new Worker(endFile);
      worker.postMessage({ kind: 'touch', handle, sizeBytes: 1024 * MIB, strideBytes: 4096 } satisfies EndOrder);
      await untilFaulting(stream.producer, role);
      const startMs = performance.now();
      await worker.terminate();
      assert.ok(performance.now() - startMs < 2000);
      using queue = BlockQueue.open(handle.parts);
      assert.equal(queue.failure, failureCode.terminated);
      queue.close();
      stream.close();
      assertNothingLeft(before);
    });
  }

  test('a hundred streams one after the other leave nothing behind', async () => {
    const use = async (): Promise<void> => {
      const { producer, consumer } = openPair(3 * BLOCK);
      await using _producer = producer;
      await using _consumer = consumer;
      producer.bytes.fill(4);
      producer.finish();
      assert.equal(consumer.bytes[2 * BLOCK + 1], 4);
      await Promise.all([producer.done(), consumer.done()]);
    };
    await use();
    const before = held();
    for (let index = 0; index < 100; index++) await use();
    assertNothingLeft(before);
  });
});

/** The worker has got as far as it can: it waits for the other end in a page fault. */
async function untilFaulting(handle: LocalHandle, role: string): Promise<void> {
  const names = role === 'producer' ? 'vortex-out' : 'vortex-in';
  using queue = BlockQueue.open(handle.parts);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    const threads = readdirSync('/proc/self/task').map((task) =>
      readFileSync(`/proc/self/task/${task}/comm`, 'utf8').trim(),
    );
    // A producer has committed all but what it may come back to; a consumer waits for the first
    // block.
    const isFar = role === 'consumer' || queue.committed >= queue.poolBlocks - 1;
    if (threads.includes(names) && isFar) return;
  }
}
