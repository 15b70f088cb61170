import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { describe, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { EventFd, FdWatch } from './index.ts';

const index = new URL('./index.ts', import.meta.url).href;

describe('a descriptor on the event loop', () => {
  test('a descriptor that is not open is refused', () => {
    assert.throws(() => FdWatch.start(-1, () => {}), { syscall: 'uv_poll_start' });
    const event = EventFd.create();
    const { fd } = event;
    event.close();
    assert.throws(() => FdWatch.start(fd, () => {}), { code: 'EBADF', syscall: 'uv_poll_start' });
  });

  test('something else than a function is refused', () => {
    using event = EventFd.create();
    assert.throws(() => FdWatch.start(event.fd, 5 as unknown as () => void), TypeError);
  });

  test('a closed watch is closed for good, and closing it twice is harmless', () => {
    using event = EventFd.create();
    const watch = FdWatch.start(event.fd, () => {});
    watch.close();
    watch.close();
    assert.throws(() => watch.hold(true), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('it calls whenever the descriptor is readable, until it is closed', async () => {
    using event = EventFd.create();
    let calls = 0;
    let { promise, resolve } = Promise.withResolvers<void>();
    using watch = FdWatch.start(event.fd, () => {
      event.take();
      calls++;
      resolve();
    });
    watch.hold(true);
    for (let round = 1; round <= 3; round++) {
      event.signal();
      await promise;
      assert.equal(calls, round);
      ({ promise, resolve } = Promise.withResolvers<void>());
    }
    watch.close();
    event.signal();
    for (let turn = 0; turn < 5; turn++) await nextTurn();
    assert.equal(calls, 3);
  });

  test('it may be closed from inside of its own call', async () => {
    using event = EventFd.create();
    const { promise, resolve } = Promise.withResolvers<void>();
    const watch = FdWatch.start(event.fd, () => {
      watch.close();
      resolve();
    });
    watch.hold(true);
    event.signal();
    await promise;
    await nextTurn();
  });

  test('a watch does not keep the process alive unless it is told to', async () => {
    const head = `import { EventFd, FdWatch, TimerFd } from '${index}';`;
    const idle = `${head} FdWatch.start(EventFd.create().fd, () => {}); console.log('over');`;
    assert.equal(await runCode(idle), 'over\n');
    const held = `${head} const timer = TimerFd.create(); timer.set(20e6);
      const watch = FdWatch.start(timer.fd, () => { console.log('fired'); watch.close(); }); watch.hold(true);`;
    assert.equal(await runCode(held), 'fired\n');
  });

  test('a worker may end, or be ended, with a watch open', async () => {
    const code = `import { EventFd, FdWatch } from '${index}'; import { parentPort } from 'node:worker_threads';
      FdWatch.start(EventFd.create().fd, () => {}).hold(true); parentPort.postMessage('watching');`;
    for (let round = 0; round < 3; round++) {
      const worker = new Worker(new URL(`data:text/javascript,${encodeURIComponent(code)}`));
      await once(worker, 'message');
      assert.equal(await worker.terminate(), 1);
    }
  });

  test('an exception in the call is one that nobody caught', async () => {
    const code = `import { EventFd, FdWatch } from '${index}';
      const event = EventFd.create(); event.signal();
      FdWatch.start(event.fd, () => { event.take(); throw new Error('from the watch'); }).hold(true);
      process.on('uncaughtException', (error) => { console.log(error.message); process.exit(); });`;
    assert.equal(await runCode(code), 'from the watch\n');
  });
});

async function runCode(code: string): Promise<string> {
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], {
    timeout: 20_000,
  });
  return stdout;
}
