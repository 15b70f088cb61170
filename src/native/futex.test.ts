import assert from 'node:assert/strict';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { futexWait, futexWake, loadAcquire, monotonicNs, SharedMemory, storeRelease } from './index.ts';

describe('futex', () => {
  test('a word that is outside the memory, not aligned or closed is refused', () => {
    const memory = SharedMemory.create({ sizeBytes: 4096 });
    assert.throws(() => futexWait(memory, 4096, 0, 0), RangeError);
    assert.throws(() => futexWait(memory, 2, 0, 0), RangeError);
    assert.throws(() => futexWake(memory, -4), RangeError);
    memory.close();
    assert.throws(() => futexWait(memory, 0, 0, 0), { code: 'ERR_MEMORY_CLOSED' });
  });

  test('a word that has changed already does not block', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    assert.equal(futexWait(memory, 0, 1), 'changed');
  });

  test('a wait ends at its timeout, not before', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    const startNs = monotonicNs();
    assert.equal(futexWait(memory, 0, 0, 5e6), 'timeout');
    assert.ok(monotonicNs() - startNs >= 5e6);
  });

  test('nobody waiting is nobody woken', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    assert.equal(futexWake(memory, 0, 100), 0);
  });

  test('a thread that sleeps on a word is woken from another thread', async () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    const words = new Int32Array(memory.buffer);
    const worker = new Worker(join(import.meta.dirname, 'fixtures/sleep-on-word.ts'), { workerData: memory.fd });
    const exited = once(worker, 'exit');
    while (loadAcquire(words, 1) === 0) await new Promise(setImmediate);
    storeRelease(words, 0, 1);
    while (loadAcquire(words, 1) === 1) {
      futexWake(memory, 0);
      await new Promise(setImmediate);
    }
    assert.deepEqual(await exited, [0]);
    assert.equal(loadAcquire(words, 1), 2);
  });
});
