// Streams on an RDMA device of the kernel, by every strategy. The engines run in this thread:
// starting workers takes long on an emulated processor.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { receiveStream } from '../../../src/vortex/net/engine/receiver.ts';
import { sendStream } from '../../../src/vortex/net/engine/sender.ts';
import { type Strategy, strategies } from '../../../src/vortex/net/index.ts';
import { BlockQueue } from '../../../src/vortex/stream/block-queue.ts';

const BLOCK_BYTES = 256 * 1024;
const SIZE_BYTES = 12 * BLOCK_BYTES + 5;
const TOTAL_BLOCKS = Math.ceil(SIZE_BYTES / BLOCK_BYTES);

const common = {
  port: 0,
  host: '127.0.0.1',
  security: { kind: 'insecure' },
  peerName: undefined,
  device: 'rxe0',
  timeoutMs: 30_000,
} as const;

function bytesOf(queue: BlockQueue, block: number): Uint8Array {
  const length = Math.min(BLOCK_BYTES, SIZE_BYTES - block * BLOCK_BYTES);
  return new Uint8Array(queue.pool.buffer, queue.offsetOf(block), length);
}

async function produce(queue: BlockQueue): Promise<void> {
  for (let block = 0; block < TOTAL_BLOCKS; block++) {
    while (block >= queue.released + queue.poolBlocks) await nextTurn();
    bytesOf(queue, block).fill(block + 1);
    if (block + 1 < TOTAL_BLOCKS) queue.commit(block + 1);
  }
  queue.finish(SIZE_BYTES);
}

async function consume(queue: BlockQueue): Promise<void> {
  for (let block = 0; block < TOTAL_BLOCKS; block++) {
    while (block >= queue.committed) await nextTurn();
    assert.ok(bytesOf(queue, block).every((byte) => byte === block + 1));
    queue.release(block + 1);
  }
}

async function carry(strategy: Strategy): Promise<void> {
  using from = BlockQueue.create({ blockBytes: BLOCK_BYTES, poolBlocks: 4 });
  using to = BlockQueue.create({ blockBytes: BLOCK_BYTES, poolBlocks: 3 });
  const { signal } = new AbortController();
  const listening = Promise.withResolvers<number>();
  const sending = sendStream({ ...common, role: 'sender', strategy, queue: from.parts }, from, {
    signal,
    tell: (message) => {
      if (message.kind === 'listening') listening.resolve(message.port);
    },
  });
  const port = await Promise.race([listening.promise, sending.then(() => 0)]);
  const receiving = receiveStream(
    { ...common, role: 'receiver', port, strategy },
    { signal, tell: () => {}, makeQueue: async () => to },
  );
  await Promise.all([sending, receiving, produce(from), consume(to)]);
}

describe('a stream on rxe', () => {
  for (const strategy of strategies) test(`by strategy ${strategy}`, () => carry(strategy));
});
