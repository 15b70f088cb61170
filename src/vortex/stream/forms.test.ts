// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import fc from 'fast-check';
import { createLocalStream, openLocalConsumer, openLocalProducer, type StreamOptions } from '../index.ts';
import { BlockQueue, ledgerWord } from './block-queue.ts';
import { VortexError } from './failure.ts';
import { Producer } from './producer.ts';

const BLOCK = 64 * 1024;

function openPair(sizeBytes?: number, options: StreamOptions = {}) {
  using stream = createLocalStream(sizeBytes, { blockBytes: BLOCK, poolBlocks: 4, ...options });
  return { producer: openLocalProducer(stream.producer), consumer: openLocalConsumer(stream.consumer) };
}

function patternOf(sizeBytes: number): Uint8Array {
  return Uint8Array.from({ length: sizeBytes }, (_, at) => (at * 7 + (at >>> 8)) & 0xff);
}

const sizes = fc.oneof(
  fc.constantFrom(0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 4 * BLOCK, 9 * BLOCK),
  fc.integer({ min: 0, max: 10 * BLOCK }),
);

describe('a stream that never blocks its thread', () => {
  test('wrong use of blocks is refused', async () => {
    const { producer, consumer } = openPair(BLOCK + 10);
    await using _producer = producer;
    await using _consumer = consumer;
    const blocks = producer.blocks();
    const first = await blocks.next();
    await assert.rejects(blocks.next(), { code: 'MILLRACE_ERR_USAGE', message: /commit the block before it/ });
    assert.throws(() => first.commit(BLOCK - 1), { code: 'MILLRACE_ERR_USAGE' });
    first.commit();
    assert.throws(() => first.commit(), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => producer.finish(), { code: 'MILLRACE_ERR_USAGE' });
    const last = await blocks.next();
    assert.equal(last.bytes.length, 10);
    last.commit();
    assert.equal(last.bytes.length, 0);
    await assert.rejects(blocks.next(), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => producer.writable(), { code: 'MILLRACE_ERR_USAGE' });
  });

  test('blocks arrive as they were committed, whatever the size', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.boolean(), async (sizeBytes, isSizeKnown) => {
        const { producer, consumer } = openPair(isSizeKnown ? sizeBytes : undefined);
        await using _producer = producer;
        await using _consumer = consumer;
        const pattern = patternOf(sizeBytes);
        const writing = (async () => {
          const blocks = producer.blocks();
          while (blocks.writtenBytes < sizeBytes) {
            const block = await blocks.next();
            const part = pattern.subarray(block.index * BLOCK, (block.index + 1) * BLOCK);
            block.bytes.set(part);
            block.commit(part.length);
          }
          producer.finish();
          await producer.done();
        })();
        let got = 0;
        for await (const block of consumer.blocks()) {
          assert.equal(block.index, Math.floor(got / BLOCK));
          assert.equal(Buffer.compare(block.bytes, pattern.subarray(got, got + block.bytes.length)), 0);
          got += block.bytes.length;
          block.release();
        }
        assert.equal(got, sizeBytes);
        await Promise.all([writing, consumer.done()]);
      }),
      { numRuns: 40 },
    );
  });

  test('a block that is held stops the producer, and blocks go back in any order', async () => {
    const { producer, consumer } = openPair(64 * BLOCK);
    await using _producer = producer;
    await using _consumer = consumer;
    const blocks = producer.blocks();
    for (let index = 0; index < 4; index++) (await blocks.next()).commit();
    const reader = consumer.blocks();
    const held = [await reader.next(), await reader.next(), await reader.next()];
    let isThere = false;
    const fifth = blocks.next().then((block) => {
      isThere = true;
      return block;
    });
    held[2]?.release();
    held[1]?.release();
    await new Promise(setImmediate);
    assert.equal(isThere, false);
    held[0]?.release();
    held[0]?.release();
    assert.equal((await fifth).index, 4);
  });

  test('Node streams carry any chunks, with backpressure', async () => {
    await fc.assert(
      fc.asyncProperty(sizes, fc.integer({ min: 500, max: 3 * BLOCK }), async (sizeBytes, chunkBytes) => {
        const { producer, consumer } = openPair();
        await using _producer = producer;
        await using _consumer = consumer;
        const pattern = patternOf(sizeBytes);
        const chunks = function* () {
          for (let at = 0; at < sizeBytes; at += chunkBytes) yield pattern.subarray(at, at + chunkBytes);
        };
        const [got] = await Promise.all([
          (async () => Buffer.concat(await consumer.readable().toArray()))(),
          pipeline(chunks, producer.writable()),
        ]);
        assert.equal(Buffer.compare(got, pattern), 0);
        await producer.done();
      }),
      { numRuns: 25 },
    );
    const { producer, consumer } = openPair();
    await using _producer = producer;
    await using _consumer = consumer;
    const writable = producer.writable();
    let isTaken = 0;
    while (isTaken < 50 && writable.write(new Uint8Array(BLOCK))) isTaken++;
    assert.ok(isTaken < 20, 'nobody reads, so it stops');
    writable.destroy();
    await once(writable, 'close');
  });

  test('web streams carry chunks, also into the buffer of the reader', async () => {
    const pattern = patternOf(5 * BLOCK + 3);
    for (const mode of ['default', 'byob'] as const) {
      const { producer, consumer } = openPair(pattern.length);
      await using _producer = producer;
      await using _consumer = consumer;
      const writing = new Blob([pattern as Uint8Array<ArrayBuffer>]).stream().pipeTo(producer.webWritable() as never);
      const parts: Uint8Array[] = [];
      const stream = consumer.webReadable();
      if (mode === 'default') {
        for await (const part of stream) parts.push(part);
      } else {
        const reader = stream.getReader({ mode: 'byob' });
        for (;;) {
          const { value, done } = await reader.read(new Uint8Array(10_000));
          if (done) break;
          parts.push(value);
        }
      }
      await writing;
      assert.equal(Buffer.compare(Buffer.concat(parts), pattern), 0);
      await producer.done();
    }
  });

  test('closing one end early fails the other with a typed error', async () => {
    const { producer, consumer } = openPair(64 * BLOCK);
    await using _consumer = consumer;
    const reading = consumer.blocks().next();
    await producer.close();
    await producer.close();
    await assert.rejects(reading, { name: 'VortexError', code: 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER' });
    await assert.rejects(consumer.done(), { code: 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER' });
    assert.throws(() => producer.blocks(), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('a handle opens one end, once', async () => {
    const before = readdirSync('/proc/self/fd').length;
    {
      using stream = createLocalStream(BLOCK, { blockBytes: BLOCK });
      assert.throws(() => openLocalProducer(stream.consumer), { code: 'MILLRACE_ERR_USAGE' });
      await using _consumer = openLocalConsumer(stream.consumer);
      assert.throws(() => openLocalConsumer(stream.consumer), { code: 'MILLRACE_ERR_USAGE', message: /opened once/ });
    }
    assert.ok(readdirSync('/proc/self/fd').length <= before);
  });

  test('a thread that dies block by block fails the stream for the other end', async () => {
    using stream = createLocalStream(64 * BLOCK, { blockBytes: BLOCK });
    const source = `
      const { workerData } = require('node:worker_threads');
      import(${JSON.stringify(join(import.meta.dirname, '../index.ts'))}).then(async ({ openLocalProducer }) => {
        (await openLocalProducer(workerData).blocks().next()).commit();
        process.exit();
      });`;
    const worker = new Worker(source, { eval: true, workerData: stream.producer });
    await using consumer = openLocalConsumer(stream.consumer);
    await assert.rejects(
      async () => {
        for await (const block of consumer.blocks()) block.release();
      },
      { code: 'MILLRACE_ERR_VORTEX_PEER_DIED' },
    );
    await worker.terminate();
  });

  test('a wait for a block that takes too long fails the stream', async () => {
    const { producer, consumer } = openPair(64 * BLOCK, { timeoutMs: 20 });
    await using _producer = producer;
    await using _consumer = consumer;
    await assert.rejects(consumer.blocks().next(), { code: 'MILLRACE_ERR_VORTEX_TIMED_OUT' });
    await assert.rejects(producer.done(), { code: 'MILLRACE_ERR_VORTEX_TIMED_OUT' });
  });

  test('a finished producer may leave before the consumer has read', async () => {
    const { producer, consumer } = openPair(2 * BLOCK);
    await using _consumer = consumer;
    const blocks = producer.blocks();
    for (let index = 0; index < 2; index++) (await blocks.next()).commit();
    await producer.close();
    let count = 0;
    for await (const block of consumer.blocks()) {
      count++;
      block.release();
    }
    assert.equal(count, 2);
  });

  test('when the connection fails, the stream fails', async () => {
    using stream = createLocalStream(BLOCK * 8, { blockBytes: BLOCK });
    const { promise: ended, reject } = Promise.withResolvers<void>();
    let isClosed = false;
    const close = async (): Promise<void> => {
      isClosed = true;
    };
    const producer = new Producer(BlockQueue.open(stream.producer.parts), {}, { ended, close });
    const done = producer.done();
    reject(new VortexError('MILLRACE_ERR_VORTEX_CUT', 'no more'));
    await assert.rejects(done, { code: 'MILLRACE_ERR_VORTEX_CUT', message: 'no more' });
    assert.throws(() => producer.blocks(), { message: 'no more' });
    await producer.close();
    assert.equal(isClosed, true);
  });

  test('a producer that violates the protocol fails the stream, and crashes nothing', async () => {
    using stream = createLocalStream(BLOCK * 64, { blockBytes: BLOCK });
    using queue = BlockQueue.open(stream.producer.parts);
    await using consumer = openLocalConsumer(stream.consumer);
    const reading = consumer.blocks().next();
    queue.commit(40);
    await assert.rejects(reading, { code: 'MILLRACE_ERR_VORTEX_PROTOCOL' });
    assert.equal(queue.ledger.words[ledgerWord.committed], 40);
  });
});
