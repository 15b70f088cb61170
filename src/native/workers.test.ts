// Runs in a process of its own: it counts the descriptors of its process, and measures its memory.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Worker } from 'node:worker_threads';
import { AGAIN, Poller, SharedMemory, Socket } from './index.ts';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const fixture = join(import.meta.dirname, 'fixtures/hold-everything.ts');

function heldMappings(): number {
  return readFileSync('/proc/self/maps', 'utf8').split('/memfd:held').length - 1;
}

describe('several threads', () => {
  for (const ending of ['return', 'sleep', 'spin']) {
    test(`a worker that ends (${ending}) without closing anything leaves nothing open`, async () => {
      // One worker first: what Node itself opens for the first one stays.
      await new Worker('0', { eval: true }).terminate();
      const before = readdirSync('/proc/self/fd').length;
      const workers = Array.from({ length: 3 }, () => new Worker(fixture, { workerData: ending }));
      await Promise.all(
        workers.map(async (worker) => {
          const exited = once(worker, 'exit');
          await once(worker, 'message');
          if (ending !== 'return') await worker.terminate();
          await exited;
        }),
      );
      assert.equal(heldMappings(), 0);
      assert.ok(readdirSync('/proc/self/fd').length <= before);
    });
  }

  test('memory that is forgotten goes when the last view of it is collected', async () => {
    let view: Uint8Array | undefined = new Uint8Array(SharedMemory.create({ sizeBytes: 4096, name: 'held' }).buffer);
    for (let i = 0; i < 3; i++) {
      gc();
      await new Promise(setImmediate);
    }
    view[0] = 3;
    assert.equal(heldMappings(), 1);
    view = undefined;
    for (let i = 0; i < 20 && heldMappings() > 0; i++) {
      gc();
      await new Promise(setImmediate);
    }
    assert.equal(heldMappings(), 0);
  });

  test('the hot calls allocate nothing', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    using poller = Poller.create();
    const [left, right] = Socket.pair();
    using _left = left;
    using _right = right;
    const round = (): void => {
      left.send(memory, 0, 64);
      poller.wait(0);
      if (right.receive(memory, 64, 64) !== 64 || right.receive(memory, 64, 64) !== AGAIN) throw new Error('lost');
    };
    for (let i = 0; i < 20_000; i++) round();
    gc();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < 20_000; i++) round();
    const perRound = (process.memoryUsage().heapUsed - before) / 20_000;
    // One object a round would be 16 bytes or more.
    assert.ok(perRound < 4, `${perRound} bytes a round`);
  });
});
