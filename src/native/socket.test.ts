// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  type Address,
  AGAIN,
  decodeAddress,
  EventFd,
  encodeAddress,
  type Fd,
  ip,
  Poller,
  pollEvents,
  RangeList,
  SharedMemory,
  Socket,
} from './index.ts';

/** A listener and both ends of one connection to it. */
function connected(stack: DisposableStack, address: Address): [client: Socket, server: Socket] {
  const listener = stack.use(Socket.stream(address.family));
  listener.bind(address);
  listener.listen();
  const client = stack.use(Socket.stream(address.family));
  client.connect(listener.localAddress);
  waitFor(listener, pollEvents.in);
  const server = listener.accept();
  assert.ok(server !== undefined);
  return [client, stack.use(server)];
}

function waitFor(socket: Fd, events: number): void {
  using poller = Poller.create();
  poller.add(socket.fd, events, 0);
  assert.equal(poller.wait(5e9), 1, 'nothing happened for 5 s');
}

const loopbacks = [ip('127.0.0.1', 0), ip('::1', 0), { family: 'unix', path: '\0millrace-test' } as const];

describe('sockets', () => {
  test('a closed socket, a closed memory and a range outside it are refused', () => {
    using stack = new DisposableStack();
    const [client, server] = connected(stack, ip('127.0.0.1', 0));
    const memory = SharedMemory.create({ sizeBytes: 4096 });
    for (const [offset, length] of [
      [0, 4097],
      [4097, 0],
      [-1, 1],
      [1, 4096],
      [0, -1],
    ]) {
      assert.throws(() => client.send(memory, offset, length), RangeError);
      assert.throws(() => server.receive(memory, offset, length), RangeError);
    }
    memory.close();
    assert.throws(() => client.send(memory, 0, 1), { code: 'ERR_MEMORY_CLOSED' });
    client.close();
    client.close();
    assert.throws(() => client.send(memory, 0, 1), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('a descriptor that is no socket is an error, not a crash', () => {
    using memory = SharedMemory.create({ sizeBytes: 4096 });
    using event = EventFd.create();
    using socket = Socket.adopt(event.duplicate().release());
    assert.throws(() => socket.receive(memory, 0, 1), { code: 'ENOTSOCK', syscall: 'recv' });
    assert.throws(() => socket.listen(), { code: 'ENOTSOCK', syscall: 'listen' });
    assert.throws(() => socket.peerAddress, { code: 'ENOTSOCK', syscall: 'getpeername' });
    assert.equal(Socket.peerAddressOf(event), undefined);
    assert.equal(Socket.localAddressOf(event), undefined);
    assert.equal(Socket.netnsCookieOf(event), 0);
  });

  test('asked again, a connect tells what has become of it meanwhile', () => {
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    const { localAddress } = listener;
    // On one host the server has answered before the first call returns, but for a kernel that is
    // very busy.
    const ask = (client: Socket): boolean => {
      assert.equal(client.connect(localAddress), false);
      const endMs = performance.now() + 5000;
      while (performance.now() < endMs) if (client.connect(localAddress)) return true;
      return false;
    };
    using client = Socket.stream('ipv4');
    assert.equal(ask(client), true);
    listener.close();
    using late = Socket.stream('ipv4');
    assert.throws(() => ask(late), { code: 'ECONNREFUSED' });
  });

  test('connecting to nobody is refused with the reason', () => {
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    const address = listener.localAddress;
    using client = Socket.stream('ipv4');
    assert.throws(
      () => {
        if (!client.connect(address)) {
          waitFor(client, pollEvents.out);
          client.finishConnect();
        }
      },
      { code: 'ECONNREFUSED', syscall: 'connect' },
    );
  });

  test('a busy address says so', () => {
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    using second = Socket.stream('ipv4');
    assert.throws(() => second.bind(listener.localAddress), { code: 'EADDRINUSE', syscall: 'bind' });
  });

  test('an empty stream says AGAIN, a shut one 0, and accept without a connection nothing', () => {
    using stack = new DisposableStack();
    const memory = stack.use(SharedMemory.create({ sizeBytes: 4096 }));
    const [client, server] = connected(stack, ip('127.0.0.1', 0));
    assert.equal(server.receive(memory, 0, 10), AGAIN);
    client.shutdownSend();
    waitFor(server, pollEvents.in);
    assert.equal(server.receive(memory, 0, 10), 0);
    const listener = stack.use(Socket.stream('ipv4'));
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    assert.equal(listener.accept(), undefined);
  });

  test('a full stream says AGAIN and a reset one throws', () => {
    using stack = new DisposableStack();
    const memory = stack.use(SharedMemory.create({ sizeBytes: 1 << 20 }));
    const [client, server] = connected(stack, ip('127.0.0.1', 0));
    let sent = 0;
    for (let n = 0; n !== AGAIN; n = client.send(memory, 0, 1 << 20)) sent += n;
    assert.ok(sent > 0);
    assert.ok(server.receivableBytes > 0);
    assert.ok(client.unacknowledgedBytes > 0);
    server.resetOnClose();
    server.close();
    waitFor(client, pollEvents.hangup);
    assert.throws(() => client.send(memory, 0, 1), { name: 'SystemError', code: 'ECONNRESET', syscall: 'send' });
    assert.throws(() => client.send(memory, 0, 1), { code: 'EPIPE' });
  });

  for (const address of loopbacks) {
    test(`bytes go both ways straight between memories over ${address.family}`, () => {
      using stack = new DisposableStack();
      const [client, server] = connected(stack, address);
      const memory = stack.use(SharedMemory.create({ sizeBytes: 8192 }));
      const bytes = new Uint8Array(memory.buffer);
      for (let i = 0; i < 1000; i++) bytes[i] = i;
      assert.equal(client.send(memory, 0, 1000), 1000);
      waitFor(server, pollEvents.in);
      assert.equal(server.peek(memory, 6000, 2), 2);
      assert.equal(server.receive(memory, 4001, 4096), 1000);
      assert.deepEqual(bytes.subarray(4001, 5001), bytes.subarray(0, 1000));
      assert.equal(server.send(memory, 4001, 1000), 1000);
      waitFor(client, pollEvents.in);
      assert.equal(client.receive(memory, 7000, 1000), 1000);
      assert.deepEqual(bytes.subarray(7000, 8000), bytes.subarray(0, 1000));
      if (address.family !== 'unix') assert.deepEqual(client.localAddress, server.peerAddress);
      assert.deepEqual(Socket.peerAddressOf(server), server.peerAddress);
      assert.deepEqual(Socket.localAddressOf(server), server.localAddress);
      assert.equal(Socket.netnsCookieOf(server), server.netnsCookie);
    });
  }

  test('a gathered send keeps order and bytes', () => {
    using stack = new DisposableStack();
    const [left, right] = Socket.pair();
    stack.use(left);
    stack.use(right);
    const size = 4096;
    const from = stack.use(SharedMemory.create({ sizeBytes: size }));
    const to = stack.use(SharedMemory.create({ sizeBytes: size }));
    const list = stack.use(new RangeList(16));
    const source = new Uint8Array(from.buffer);
    const target = new Uint8Array(to.buffer);
    for (let i = 0; i < size; i++) source[i] = (i * 31) >> 3;
    const range = fc
      .tuple(fc.nat(size - 1), fc.nat(300))
      .map(([at, length]) => [at, Math.min(length, size - at)] as const);
    fc.assert(
      fc.property(fc.array(range, { minLength: 1, maxLength: 16 }), (ranges) => {
        const expected = ranges.flatMap(([at, length]) => [...source.subarray(at, at + length)]);
        for (const [index, [at, length]] of ranges.entries()) list.set(index, from, at, length);
        if (expected.length === 0) return;
        assert.equal(left.sendRanges(list, ranges.length), expected.length);
        const got: number[] = [];
        while (got.length < expected.length) got.push(...target.subarray(0, right.receive(to, 0, size)));
        assert.deepEqual(got, expected);
      }),
    );
  });

  test('a range list with a bad row or a bad count is refused before anything is sent', () => {
    using stack = new DisposableStack();
    const [left, right] = Socket.pair();
    stack.use(left);
    stack.use(right);
    const memory = stack.use(SharedMemory.create({ sizeBytes: 64 }));
    const list = stack.use(new RangeList(4));
    assert.throws(() => list.set(4, memory, 0, 1), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => new RangeList(257), { code: 'MILLRACE_ERR_USAGE' });
    list.set(0, memory, 0, 64);
    for (const [offset, length] of [
      [0, 65],
      [65, 0],
      [-1, 1],
      [Number.NaN, 1],
      [0, Number.POSITIVE_INFINITY],
    ]) {
      list.set(1, memory, offset, length);
      assert.throws(() => left.sendRanges(list, 2), RangeError);
    }
    for (const count of [0, -1, 5, 257]) assert.throws(() => left.sendRanges(list, count), RangeError);
    const closed = SharedMemory.create({ sizeBytes: 64 });
    list.set(1, closed, 0, 1);
    closed.close();
    assert.throws(() => left.sendRanges(list, 2), { code: 'ERR_MEMORY_CLOSED' });
    assert.equal(right.receive(memory, 0, 64), AGAIN);
  });

  for (const host of ['127.0.0.1', '::1']) {
    test(`datagrams arrive whole with their sender's address over ${host}`, () => {
      using stack = new DisposableStack();
      const memory = stack.use(SharedMemory.create({ sizeBytes: 4096 }));
      const family = ip(host, 0).family;
      const one = stack.use(Socket.datagram(family));
      const two = stack.use(Socket.datagram(family));
      one.bind(ip(host, 0));
      two.bind(ip(host, 0));
      const from = new Uint8Array(128);
      assert.equal(two.receiveFrom(memory, 0, 10, from), AGAIN);
      new Uint8Array(memory.buffer).fill(5, 0, 100);
      assert.equal(one.sendTo(memory, 0, 100, encodeAddress(two.localAddress)), 100);
      waitFor(two, pollEvents.in);
      assert.equal(two.receiveFrom(memory, 200, 60, from), 100, 'the true size of a cut datagram');
      assert.deepEqual(decodeAddress(from, from.length), one.localAddress);
      assert.deepEqual([...new Uint8Array(memory.buffer, 259, 2)], [5, 0]);
    });
  }

  test('options are set and read back', () => {
    using socket = Socket.stream('ipv4');
    assert.equal(socket.getOption('noDelay'), 0);
    socket.setOption('noDelay', 1);
    assert.equal(socket.getOption('noDelay'), 1);
    socket.setOption('receiveBuffer', 65536);
    assert.equal(socket.getOption('receiveBuffer'), 131072);
    using unix = Socket.stream('unix');
    assert.throws(() => unix.setOption('noDelay', 1), { code: 'ENOTSUP', message: /noDelay/ });
  });

  test('a connection knows its round trip', () => {
    using stack = new DisposableStack();
    const [client] = connected(stack, ip('127.0.0.1', 0));
    assert.ok(client.roundTripUs > 0 && client.roundTripUs < 1e6, `${client.roundTripUs} us`);
    const [unix, other] = Socket.pair();
    stack.use(other);
    assert.throws(() => stack.use(unix).roundTripUs, { code: 'ENOTSUP' });
  });

  test('a unix socket at a path is found there', () => {
    const path = join(tmpdir(), `millrace-socket-${process.pid}`);
    using stack = new DisposableStack();
    stack.defer(() => rmSync(path, { force: true }));
    const [client] = connected(stack, { family: 'unix', path });
    assert.deepEqual(client.peerAddress, { family: 'unix', path });
  });
});

describe('descriptors over unix sockets', () => {
  test('descriptors pass in both directions with their bytes', () => {
    using stack = new DisposableStack();
    const [left, right] = Socket.pair('messages');
    stack.use(left);
    stack.use(right);
    const memory = stack.use(SharedMemory.create({ sizeBytes: 4096 }));
    const event = stack.use(EventFd.create());
    const bytes = new Uint8Array(16);
    assert.equal(right.receiveFds(bytes), undefined);
    left.sendFds(Uint8Array.of(1, 2, 3), [memory.fd, event.fd]);
    const got = right.receiveFds(bytes);
    assert.equal(got?.bytes, 3);
    assert.deepEqual([...bytes.subarray(0, 3)], [1, 2, 3]);
    const [first, second] = got?.fds ?? [];
    assert.ok(first !== undefined && second !== undefined);
    const same = stack.use(SharedMemory.open(first));
    const sameEvent = stack.use(EventFd.adopt(second.release()));
    new Uint8Array(memory.buffer)[9] = 77;
    assert.equal(new Uint8Array(same.buffer)[9], 77);
    sameEvent.signal(5);
    assert.equal(event.take(), 5);
    right.sendFds(Uint8Array.of(9), [sameEvent.fd]);
    const back = left.receiveFds(bytes);
    assert.equal(back?.fds.length, 1);
    back?.fds[0]?.close();
  });

  test('no bytes, too many descriptors and bad ones are refused', () => {
    using stack = new DisposableStack();
    const [left, right] = Socket.pair();
    stack.use(left);
    stack.use(right);
    assert.throws(() => left.sendFds(new Uint8Array(0), [left.fd]), RangeError);
    assert.throws(
      () =>
        left.sendFds(
          Uint8Array.of(1),
          Array.from({ length: 65 }, () => left.fd),
        ),
      RangeError,
    );
    assert.throws(() => left.sendFds(Uint8Array.of(1), [-1]), { code: 'EBADF' });
    assert.equal(right.receiveFds(new Uint8Array(8)), undefined);
  });

  test('descriptors that nobody takes out are not leaked', () => {
    const before = readdirSync('/proc/self/fd').length;
    {
      using stack = new DisposableStack();
      const [left, right] = Socket.pair();
      stack.use(left);
      stack.use(right);
      for (let i = 0; i < 10; i++)
        left.sendFds(
          Uint8Array.of(i),
          Array.from({ length: 64 }, () => left.fd),
        );
      const got = right.receiveFds(new Uint8Array(1));
      assert.equal(got?.fds.length, 64);
      for (const fd of got?.fds ?? []) fd.close();
    }
    assert.ok(readdirSync('/proc/self/fd').length <= before);
  });
});
