import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { monotonicNs, nameThread, pinThread, threadAffinity, threadId, yieldProcessor } from './index.ts';

describe('thread', () => {
  test('a processor that is not there is refused', () => {
    for (const cpu of [-1, 1_000_000]) assert.throws(() => pinThread(cpu), { code: 'EINVAL' });
  });

  test('a pinned thread may run on that processor only', () => {
    const [first = 0] = threadAffinity();
    pinThread(first);
    assert.deepEqual(threadAffinity(), [first]);
  });

  test('a name of more than 15 bytes is refused, a shorter one is seen by the kernel', () => {
    assert.throws(() => nameThread('sixteen-bytes-ab'), RangeError);
    nameThread('lane-7');
    assert.equal(readFileSync(`/proc/self/task/${threadId()}/comm`, 'utf8'), 'lane-7\n');
  });

  test('the clock never goes back and agrees with that of Node', () => {
    let last = monotonicNs();
    for (let i = 0; i < 10_000; i++) {
      const now = monotonicNs();
      assert.ok(now >= last);
      last = now;
    }
    assert.ok(Math.abs(Number(process.hrtime.bigint()) - monotonicNs()) < 50e6);
  });

  test('a yielded processor goes to a thread that waits for it, and the result tells', async () => {
    pinThread(threadAffinity()[0]);
    // It has the same processor.
    const busy = spawn(process.execPath, [
      '-e',
      'console.log(); for (const end = Date.now() + 10_000; Date.now() < end; );',
    ]);
    const exited = once(busy, 'exit');
    await once(busy.stdout, 'data');
    let longestNs = 0;
    for (const endNs = monotonicNs() + 5e9; longestNs < 500_000 && monotonicNs() < endNs; ) {
      longestNs = Math.max(longestNs, yieldProcessor());
    }
    busy.kill('SIGKILL');
    await exited;
    assert.ok(longestNs >= 500_000, `${longestNs} ns`);
  });
});
