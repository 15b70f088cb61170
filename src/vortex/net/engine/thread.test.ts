// The threads of engines live as long as their streams, and a second more for the next one.
// Runs in a process of its own: it counts the threads of its process.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import type { Worker } from 'node:worker_threads';
import { openReceiver, openSender, type Receiver, type Sender } from '../index.ts';

const small = { blockBytes: 65_536, poolBlocks: 4, hugePages: 'never' } as const;
const workers: Worker[] = [];
process.on('worker', (worker) => workers.push(worker));
const alive = (): Worker[] => workers.filter(({ threadId }) => threadId !== -1);

async function open(): Promise<[Sender, Receiver]> {
  const listening = Promise.withResolvers<number>();
  const where = { host: '127.0.0.1', port: 0 };
  const opening = openSender(where, undefined, { ...small, onListening: listening.resolve });
  const receiver = await openReceiver('127.0.0.1', await listening.promise, small);
  return [await opening, receiver];
}

async function moveBytes([sender, receiver]: [Sender, Receiver]): Promise<void> {
  sender.writable().end('some bytes');
  const blocks: string[] = [];
  for await (const block of receiver.blocks()) {
    blocks.push(Buffer.from(block.bytes).toString());
    block.release();
  }
  assert.deepEqual(blocks, ['some bytes']);
  await Promise.all([sender.done(), receiver.done()]);
}

async function close(ends: readonly (Sender | Receiver)[]): Promise<void> {
  await Promise.all(ends.map((end) => end.close()));
}

test('threads whose stream is closed run the next engine, and do not keep the program alive', async () => {
  for (let times = 0; times < 3; times++) {
    const ends = await open();
    await moveBytes(ends);
    await close(ends);
  }
  // Two for each would be six; a machine that stands still for a second may need a new one.
  assert.ok(workers.length < 6, `${workers.length} threads were started`);
  assert.ok(!process.getActiveResourcesInfo().includes('MessagePort'));
});

test('a stream that is closed late does not disturb the stream that has its threads', async () => {
  const early = await open();
  await moveBytes(early);
  const late = await open();
  await close(early);
  await moveBytes(late);
  await close(late);
});

test('a thread whose stream has failed ends at once, a spare one after a while', async () => {
  const [sender, receiver] = await open();
  const before = alive();
  const ended = before.map((worker) => {
    // So that this program lives as long as they do.
    worker.ref();
    return once(worker, 'exit');
  });
  await receiver.close();
  await assert.rejects(sender.done(), { code: 'MILLRACE_ERR_VORTEX_CLOSED_BY_PEER' });
  await sender.close();
  assert.ok(alive().length < before.length);
  await Promise.all(ended);
});
