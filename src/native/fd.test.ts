import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, fstatSync, openSync } from 'node:fs';
import { constants } from 'node:os';
import { describe, test } from 'node:test';
import { EventFd, Fd, PidFd, Poller, pollEvents, TimerFd } from './index.ts';

describe('descriptors', () => {
  test('a number that is not open cannot be adopted', () => {
    for (const fd of [-1, 1_000_000]) assert.throws(() => Fd.adopt(fd), { code: 'EBADF', syscall: 'fcntl' });
  });

  test('a path that cannot be opened says which', () => {
    assert.throws(() => Fd.open('/no/such/file', 0), { code: 'ENOENT', syscall: 'open', message: /\/no\/such\/file/ });
  });

  test('closing twice does not close the next owner of the number', () => {
    const first = EventFd.create();
    const number = first.fd;
    first.close();
    const reused = openSync('/dev/null', 'r');
    assert.equal(reused, number);
    first.close();
    assert.ok(fstatSync(reused).isCharacterDevice());
    closeSync(reused);
    assert.throws(() => first.fd, { code: 'MILLRACE_ERR_CLOSED' });
    assert.throws(() => first.signal(), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('a released descriptor stays open for its next owner to close', () => {
    const event = EventFd.create();
    const number = event.release();
    assert.ok(event.isClosed);
    using again = EventFd.adopt(number);
    again.signal(2);
    assert.equal(again.take(), 2);
  });

  test('an eventfd counts signals until they are taken', () => {
    using event = EventFd.create();
    assert.equal(event.take(), 0);
    event.signal();
    event.signal(41);
    assert.equal(event.take(), 42);
    assert.equal(event.take(), 0);
  });

  test('a duplicate counts on the same eventfd and outlives it', () => {
    const event = EventFd.create();
    using copy = EventFd.adopt(event.duplicate().release());
    event.signal(3);
    event.close();
    assert.equal(copy.take(), 3);
  });

  test('a timerfd fires once or again and again', () => {
    using timer = TimerFd.create();
    using poller = Poller.create();
    poller.add(timer.fd, pollEvents.in, 0);
    assert.throws(() => timer.set(Number.NaN), TypeError);
    timer.set(1e6);
    assert.equal(poller.wait(1e9), 1);
    assert.equal(timer.take(), 1);
    assert.equal(poller.wait(0), 0);
    timer.set(1, 1e5);
    let fired = 0;
    while (fired < 3 && poller.wait(1e9) === 1) fired += timer.take();
    assert.ok(fired >= 3);
    timer.set(0);
    timer.take();
    assert.equal(poller.wait(1e6), 0);
  });

  test('a pidfd of nobody is refused', () => {
    assert.throws(() => PidFd.of(2 ** 22 + 1), { code: 'ESRCH' });
  });

  test('a pidfd tells when its process has ended', async () => {
    const child = spawn('sleep', ['60']);
    const exited = once(child, 'exit');
    using process = PidFd.of(child.pid ?? 0);
    using poller = Poller.create();
    poller.add(process.fd, pollEvents.in, 7);
    assert.equal(poller.wait(0), 0);
    process.signal(constants.signals.SIGKILL);
    assert.equal(poller.wait(5e9), 1);
    assert.equal(poller.token(0), 7);
    assert.deepEqual(await exited, [null, 'SIGKILL']);
    assert.throws(() => process.signal(0), { code: 'ESRCH' });
  });
});
