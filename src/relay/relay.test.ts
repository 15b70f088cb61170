import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { EventLoop } from '../loop/index.ts';
import { formatAddress, ip, pollEvents, SharedMemory, Socket } from '../native/index.ts';
import {
  call,
  carried,
  deadEnd,
  eventsOf,
  fill,
  listen,
  receiveExactly,
  receiveToEnd,
  receiveToFailure,
  sendAll,
  sendSome,
  startWorld,
  text,
  until,
} from './fixtures/relayed.ts';
import { Pump } from './pump.ts';
import { Relay } from './relay.ts';

const decode = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

describe('a relay', () => {
  test('an address that is taken, that is not of this host, or none at all, is said in one line', () => {
    using world = startWorld();
    const [taken = ip('127.0.0.1', 0)] = world.relay.addresses;
    const { steering } = world;
    assert.throws(() => Relay.start({ listen: [taken], steering }), {
      message: `listen on ${formatAddress(taken)}: the port is in use; choose another with --listen ADDR:PORT`,
    });
    assert.throws(() => Relay.start({ listen: [ip('192.0.2.1', 0)], steering }), /this host has no such address/);
    assert.throws(() => Relay.start({ listen: [], steering }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => Relay.start({ listen: [{ family: 'unix', path: '/x' }], steering }), /listens on IP addresses/);
  });

  test('closing twice is harmless, and resets what is open', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    world.relay.close();
    world.relay.close();
    assert.equal((await receiveToFailure(client)).code, 'ECONNRESET');
    assert.equal((await receiveToFailure(server)).code, 'ECONNRESET');
    assert.equal(world.steering.callers.size, 0);
  });

  test('who was not steered here is reset and counted', async () => {
    using world = startWorld();
    const stranger = world.stack.use(Socket.stream('ipv4'));
    const [address = deadEnd()] = world.relay.addresses;
    stranger.connect(address);
    assert.equal((await receiveToFailure(stranger)).code, 'ECONNRESET');
    const { accepted, strangers, open } = world.relay.counters;
    assert.deepEqual({ accepted, strangers, open }, { accepted: 1, strangers: 1, open: 0 });
  });

  test('a server that refuses, or a destination without a route, resets the client and is never a clean end', async () => {
    using world = startWorld();
    for (const original of [deadEnd(), ip('240.0.0.1', 9), ip('::1', 9)]) {
      const client = call(world, original);
      await until('the client is connected', () => (eventsOf(client) & pollEvents.error) !== 0);
      assert.equal((await receiveToFailure(client)).code, 'ECONNRESET', formatAddress(original));
    }
    const { unreachable, open } = world.relay.counters;
    assert.deepEqual({ unreachable, open }, { unreachable: 3, open: 0 });
    assert.equal(world.steering.callers.size, 0);
  });

  for (const host of ['127.0.0.1', '::1']) {
    test(`carries both ways at ${host}, whoever speaks first, and tells who is called and who calls`, async () => {
      using world = startWorld(host);
      const [client, server] = await carried(world, host);
      sendSome(server, text('220 ready'));
      assert.equal(decode(await receiveExactly(client, 9)), '220 ready');
      sendSome(client, text('hello'));
      assert.equal(decode(await receiveExactly(server, 5)), 'hello');
      assert.deepEqual(world.steering.callers.get(formatAddress(server.peerAddress)), client.localAddress);
      const [connection] = world.relay.connections;
      assert.ok(connection !== undefined);
      const { state, bytesToServer, bytesToClient } = connection;
      assert.deepEqual({ state, bytesToServer, bytesToClient }, { state: 'open', bytesToServer: 5, bytesToClient: 9 });
      assert.deepEqual(connection.client, client.localAddress);
      assert.deepEqual(connection.local, server.peerAddress);
      assert.deepEqual(connection.original, server.localAddress);
    });
  }

  test('one port serves both families', async () => {
    using world = startWorld('127.0.0.1', { listen: [ip('127.0.0.1', 0), ip('::1', 0)] });
    const [first, second] = world.relay.addresses;
    assert.ok(first?.family === 'ipv4' && second?.family === 'ipv6');
    assert.equal(first.port, second.port);
  });

  test('what was sent before the server answered, and the end after it, arrive', async () => {
    using world = startWorld();
    const listener = listen(world.stack);
    const client = call(world, listener.localAddress);
    await sendAll(client, text('early'));
    client.shutdownSend();
    const server = world.stack.use(await until('the server is called', () => listener.accept()));
    assert.equal(decode(await receiveExactly(server, 5)), 'early');
    assert.equal(await receiveToEnd(server), 0);
  });

  test('urgent data does not stop what follows it', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    await sendAll(client, text('before'));
    using memory = SharedMemory.create({ sizeBytes: 1 });
    client.sendUrgent(memory, 0, 1);
    await sendAll(client, text('after'));
    // The urgent byte itself is not carried, as a receiver that does not ask for it never sees it.
    assert.equal(decode(await receiveExactly(server, 11)), 'beforeafter');
  });
});

describe('an end that is carried', () => {
  test('half-closed by the client: the server reads the end and goes on sending', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    await sendAll(client, text('question'));
    client.shutdownSend();
    assert.equal(await receiveToEnd(server), 8);
    assert.ok((eventsOf(server) & pollEvents.peerClosed) !== 0, 'POLLRDHUP');
    assert.equal(eventsOf(server) & pollEvents.hangup, 0);
    await sendAll(server, new Uint8Array(3_000_000));
    server.close();
    assert.equal(await receiveToEnd(client), 3_000_000);
    await until('the connection is over', () => world.relay.counters.open === 0);
    assert.equal(world.relay.counters.resets, 0);
    assert.equal(world.steering.callers.size, 0);
  });

  test('half-closed by the server: the client goes on sending', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    server.shutdownSend();
    assert.equal(await receiveToEnd(client), 0);
    await sendAll(client, new Uint8Array(3_000_000));
    client.close();
    assert.equal(await receiveToEnd(server), 3_000_000);
    await until('the connection is over', () => world.relay.counters.open === 0);
    assert.equal(world.relay.counters.resets, 0);
  });

  test('send and close at once delivers everything, however slow the receiver is', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    let sent = 0;
    for (let n = sendSome(client, new Uint8Array(1 << 20)); n > 0; n = sendSome(client, new Uint8Array(1 << 20)))
      sent += n;
    client.close();
    assert.equal(await receiveToEnd(server), sent);
  });

  test('writing to a peer that has closed fails with EPIPE, as without a relay', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    client.close();
    assert.equal(await receiveToEnd(server), 0);
    sendSome(server, text('too late'));
    await until('the reset comes back', () => (eventsOf(server) & pollEvents.error) !== 0);
    assert.throws(() => sendSome(server, text('again')), { code: 'EPIPE' });
  });
});

describe('a reset that is carried', () => {
  for (const [who, other] of [
    ['client', 'server'],
    ['server', 'client'],
  ] as const) {
    test(`by the ${who}: the ${other} reads what was sent before and then ECONNRESET`, async () => {
      using world = startWorld();
      const [client, server] = await carried(world);
      const [dying, living] = who === 'client' ? [client, server] : [server, client];
      await sendAll(dying, text('last words'));
      // Plain TCP drops what is still in the sender's queue, so wait until it has left.
      await until('it has left', () => dying.unacknowledgedBytes === 0);
      dying.resetOnClose();
      dying.close();
      assert.deepEqual(await receiveToFailure(living), { code: 'ECONNRESET', got: 10 });
      await until('the connection is over', () => world.relay.counters.open === 0);
      assert.equal(world.relay.counters.resets, 1);
      assert.equal(world.steering.callers.size, 0);
    });

    test(`by the ${who}, who closes with bytes unread: the ${other} reads ECONNRESET`, async () => {
      using world = startWorld();
      const [client, server] = await carried(world);
      const [dying, living] = who === 'client' ? [client, server] : [server, client];
      await sendAll(living, text('never read'));
      await until('it has arrived', () => dying.receivableBytes === 10);
      dying.close();
      assert.equal((await receiveToFailure(living)).code, 'ECONNRESET');
    });

    test(`by the ${who} while the ${other} does not read: the ${other} gets a reset within a second`, async () => {
      using world = startWorld();
      const [client, server] = await carried(world);
      const [dying, living] = who === 'client' ? [client, server] : [server, client];
      await fill(dying);
      dying.resetOnClose();
      dying.close();
      const startMs = performance.now();
      await until('the reset', () => (eventsOf(living) & pollEvents.error) !== 0);
      assert.ok(performance.now() - startMs < 1000);
      assert.equal(world.relay.counters.open, 0);
    });
  }

  test('after a half-close, too', async () => {
    using world = startWorld();
    const [client, server] = await carried(world);
    client.shutdownSend();
    assert.equal(await receiveToEnd(server), 0);
    server.resetOnClose();
    server.close();
    assert.equal((await receiveToFailure(client)).code, 'ECONNRESET');
  });

  test('by a client that hardly said hello: the server sees a connection, its bytes and the reset', async () => {
    using world = startWorld();
    const listener = listen(world.stack);
    const client = call(world, listener.localAddress);
    await sendAll(client, text('x'));
    await until('the relay has it', () => world.relay.counters.accepted === 1);
    client.resetOnClose();
    client.close();
    const server = world.stack.use(await until('the server is called', () => listener.accept()));
    assert.deepEqual(await receiveToFailure(server), { code: 'ECONNRESET', got: 1 });
  });
});

describe('a client that is gone before it was accepted', () => {
  test('is counted as a reset, and nobody is called', async () => {
    using world = startWorld();
    const client = call(world, deadEnd());
    client.resetOnClose();
    client.close();
    await until('the relay has it', () => world.relay.counters.resets === 1);
    const { accepted, open, unreachable } = world.relay.counters;
    assert.deepEqual({ accepted, open, unreachable }, { accepted: 1, open: 0, unreachable: 0 });
  });
});

test('a server that speaks and resets before the relay knows that it took the call is heard, too', async () => {
  using stack = new DisposableStack();
  const lane = stack.use(new EventLoop());
  const pump = stack.use(new Pump(lane));
  const connect = (): [Socket, Socket] => {
    const listener = listen(stack);
    const near = stack.use(Socket.stream('ipv4'));
    near.connect(listener.localAddress);
    const far = listener.accept();
    assert.ok(far !== undefined);
    return [near, stack.use(far)];
  };
  const [client, callersLeg] = connect();
  const [serversLeg, server] = connect();
  const ends: string[] = [];
  pump.carry(callersLeg, serversLeg, true, ({ kind }) => ends.push(kind));
  sendSome(server, text('last words'));
  while (server.unacknowledgedBytes > 0);
  server.resetOnClose();
  server.close();
  await until('it is over', () => lane.turn(0) === 0 && ends.length > 0);
  assert.deepEqual(await receiveToFailure(client), { code: 'ECONNRESET', got: 10 });
  assert.deepEqual(ends, ['reset']);
});
