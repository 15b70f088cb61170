// The heaps of threads: limited on purpose, and given back when a thread idles.
// Runs in a process of its own: it changes how the heap of its process grows.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { Worker } from 'node:worker_threads';
import { IdleCollector, laneHeap, limitHeapGrowth } from './index.ts';

const MIB = 2 ** 20;
const heapBytes = (): number => getHeapStatistics().total_physical_size;

/** Objects that nothing refers to, afterwards. */
function litter(mib: number): void {
  const kept: number[][] = [];
  for (let index = 0; index < mib * 8; index++) kept.push(Array.from({ length: 16_384 }, (_, each) => each + 0.5));
  assert.equal(kept.length, mib * 8);
}

test('garbage of a thread that idles is given back, once', () => {
  const collector = new IdleCollector();
  collector.onIdle();
  // What the start has left is collected, if it is worth it.
  const start = collector.collections;
  const before = heapBytes();
  litter(64);
  assert.ok(heapBytes() > before + 16 * MIB);
  collector.onIdle();
  collector.onIdle();
  assert.equal(collector.collections, start + 1);
  assert.ok(heapBytes() < before + 8 * MIB, `${heapBytes() / MIB} MiB after ${before / MIB} MiB`);
});

test('a heap of a lane that makes garbage all the time stays small, and its limits are those that were set', async () => {
  limitHeapGrowth();
  const program = `
    const { parentPort, resourceLimits } = require('node:worker_threads');
    const { getHeapStatistics } = require('node:v8');
    const live = Array.from({ length: 1000 }, () => ({}));
    let most = 0;
    // Each lives until a thousand others have come, as connections do.
    for (let count = 0; count < 2_000_000; count++) {
      live[count % live.length] = { name: 'connection ' + count, words: [count, count + 1, count + 2] };
      if (count % 100_000 === 0) most = Math.max(most, getHeapStatistics().total_physical_size);
    }
    parentPort.postMessage({ most, resourceLimits });`;
  const worker = new Worker(program, { eval: true, resourceLimits: laneHeap });
  const { promise, resolve, reject } = Promise.withResolvers<{ most: number; resourceLimits: object }>();
  worker.once('message', resolve).once('error', reject);
  const { most, resourceLimits } = await promise;
  assert.ok(most < 40 * MIB, `${most / MIB} MiB`);
  assert.deepEqual({ ...resourceLimits, ...laneHeap }, resourceLimits);
});
