import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { EventFd, monotonicNs, Poller, pollEvents } from './index.ts';

describe('poller', () => {
  test('a capacity of nothing is refused', () => {
    for (const capacity of [0, -1, 0.5]) {
      assert.throws(() => Poller.create(capacity), { code: 'MILLRACE_ERR_USAGE' });
    }
  });

  test('bad descriptors and double additions are errors', () => {
    using poller = Poller.create();
    using event = EventFd.create();
    assert.throws(() => poller.add(-1, pollEvents.in, 0), { code: 'EBADF', syscall: 'epoll_ctl' });
    assert.throws(() => poller.remove(event.fd), { code: 'ENOENT' });
    poller.add(event.fd, pollEvents.in, 0);
    assert.throws(() => poller.add(event.fd, pollEvents.in, 0), { code: 'EEXIST' });
    poller.close();
    poller.close();
    assert.throws(() => poller.wait(0), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('a batch holds tokens and events of all that is ready, up to its capacity', () => {
    using poller = Poller.create(8);
    using stack = new DisposableStack();
    const events = Array.from({ length: 12 }, () => stack.use(EventFd.create()));
    for (const [index, event] of events.entries())
      poller.add(event.fd, pollEvents.in | pollEvents.edge, 0xfff0_0000 + index);
    const seen = new Set<number>();
    for (const event of events) event.signal();
    for (let count = poller.wait(0); count > 0; count = poller.wait(0)) {
      assert.ok(count <= 8);
      for (let i = 0; i < count; i++) {
        assert.equal(poller.events(i), pollEvents.in);
        seen.add(poller.token(i));
      }
    }
    assert.deepEqual(
      [...seen].sort((a, b) => a - b),
      events.map((_, index) => 0xfff0_0000 + index),
    );
  });

  test('what is watched can be changed and removed', () => {
    using poller = Poller.create();
    using event = EventFd.create();
    event.signal();
    poller.add(event.fd, pollEvents.in, 1);
    poller.change(event.fd, pollEvents.out, 2);
    assert.equal(poller.wait(0), 1);
    assert.equal(poller.token(0), 2);
    assert.equal(poller.events(0), pollEvents.out);
    poller.remove(event.fd);
    assert.equal(poller.wait(0), 0);
  });

  test('a timeout of less than a millisecond is kept', () => {
    using poller = Poller.create();
    const startNs = monotonicNs();
    for (let i = 0; i < 20; i++) poller.wait(100_000);
    const tookNs = monotonicNs() - startNs;
    assert.ok(tookNs >= 20 * 100_000, `${tookNs} ns`);
    assert.ok(tookNs < 20 * 1e6 * 10, `${tookNs} ns`);
  });
});
