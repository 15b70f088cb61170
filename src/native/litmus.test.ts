// Runs alone: two processes must run at the same time, one on each processor.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { HEAD, pattern, RING_BYTES, SLOT_WORDS, SLOTS, slotStart, TAIL, TOTAL } from './fixtures/ring-shape.ts';
import { compareExchange, fetchAdd, futexWake, loadAcquire, SharedMemory, storeRelease } from './index.ts';

const fixture = (name: string): string => join(import.meta.dirname, 'fixtures', name);

/** Writes all records, then waits for the reader's exit. */
async function produce(memory: SharedMemory, exited: Promise<unknown[]>): Promise<unknown> {
  const words = new Int32Array(memory.buffer);
  let isOver = false;
  const over = exited.then((result) => {
    isOver = true;
    return result[0];
  });
  for (let next = 0; next < TOTAL && !isOver; next++) {
    // Pairs with the reader's storeRelease of TAIL. Every so often let the event loop see an early
    // exit.
    while (next - loadAcquire(words, TAIL) >= SLOTS && !isOver) await new Promise(setImmediate);
    const start = slotStart(next % SLOTS);
    for (let i = 0; i < SLOT_WORDS; i++) words[start + i] = pattern(next, i);
    storeRelease(words, HEAD, next + 1);
    futexWake(memory, HEAD * 4);
  }
  return over;
}

describe('ordering in shared memory', () => {
  test('a reader thread that sees the index sees the record', async () => {
    using memory = SharedMemory.create({ sizeBytes: RING_BYTES });
    const worker = new Worker(fixture('consume-ring.ts'), { workerData: memory.fd });
    const failed = once(worker, 'error').then(([error]) => Promise.reject(error));
    assert.equal(await Promise.race([produce(memory, once(worker, 'exit')), failed]), 0);
  });

  test('a reader process that sees the index sees the record', async () => {
    using memory = SharedMemory.create({ sizeBytes: RING_BYTES });
    const child = spawn(process.execPath, [fixture('consume-ring.ts')], {
      stdio: ['ignore', 'inherit', 'inherit', memory.fd],
    });
    assert.equal(await produce(memory, once(child, 'exit')), 0);
  });

  test('additions of two processes at once are never lost', async () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    const words = new Int32Array(memory.buffer);
    const child = spawn(process.execPath, [fixture('add-in-process.ts'), '3', '1', '1000000'], {
      stdio: ['ignore', 'inherit', 'inherit', memory.fd],
    });
    const exited = once(child, 'exit');
    while (loadAcquire(words, 3) === 0 && child.exitCode === null) await new Promise(setImmediate);
    for (let i = 0; i < 1_000_000; i++) fetchAdd(words, 3, 1);
    assert.deepEqual(await exited, [0, null]);
    assert.equal(loadAcquire(words, 3), 2_000_000);
  });

  test('a compare-and-exchange stores only what it expected', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    const words = new Int32Array(memory.buffer);
    assert.equal(compareExchange(words, 0, 0, 5), 0);
    assert.equal(compareExchange(words, 0, 0, 6), 5);
    assert.equal(words[0], 5);
  });
});
