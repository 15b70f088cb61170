// The daemon finds both ends of a connection among the sockets that programs hand to it, and gives
// them one slot; and no program can harm it or others.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { DirectServer } from '../../../src/direct/index.ts';
import { arenaBytes, DIRECT_VERSION, messageKinds, SLOT_BYTES, SLOTS_OFFSET } from '../../../src/direct/layout.ts';
import { addon } from '../../../src/native/addon.ts';
import { EventFd, Fd, ip, SharedMemory, Socket } from '../../../src/native/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { Conversation, type Heard, hangUp } from './conversation.ts';
import { type Ends, tcpPair } from './tcp-pair.ts';

const ringBytes = 4096;
const pairs = 80;
const { arena, decline, demote, forget, hello, offer, promote, withdraw } = messageKinds;

describe('connections of two programs', () => {
  const undo = new DisposableStack();
  let path: string;
  let server: DirectServer;
  let open = new DisposableStack();
  let hasRoom = true;

  before(() => {
    const folder = undo.use(temporaryFolder('direct'));
    path = join(folder.path, 'x.direct');
    const memoryBytes = pairs * 2 * ringBytes;
    server = undo.use(DirectServer.start({ socketPath: path, ringBytes, memoryBytes, hasRoom: () => hasRoom }));
  });
  after(() => undo.dispose());
  afterEach(async () => {
    open.dispose();
    open = new DisposableStack();
    await eventually('nothing is left', () => {
      const { programs, waiting, connections } = server.status;
      return programs + waiting + connections === 0;
    });
  });

  const begin = async (): Promise<Conversation> => open.use(await Conversation.begin(path));
  const pair = async (): Promise<Ends> => open.use(await tcpPair());

  /** Both hear of the same slot, as different parties. */
  async function promoted(one: Conversation, other: Conversation): Promise<readonly [Heard, Heard]> {
    const [left, right] = [await one.expect(promote), await other.expect(promote)];
    assert.deepEqual([left.arena, left.slot, left.party], [right.arena, right.slot, 1 - right.party]);
    return [left, right];
  }

  /** The first connection of two programs, with the arena that they get for it. */
  async function connected(): Promise<{
    a: Conversation;
    b: Conversation;
    arenas: readonly [Heard, Heard];
    slot: number;
  }> {
    const [a, b] = [await begin(), await begin()];
    const { client, acceptor } = await pair();
    a.offer(1, client.fd);
    b.offer(2, acceptor.fd);
    const arenas = [await a.expect(arena), await b.expect(arena)] as const;
    const [{ slot }] = await promoted(a, b);
    return { a, b, arenas, slot };
  }

  test('who has another version, or says no hello, is hung up on', async () => {
    for (const message of [
      { kind: hello, value: DIRECT_VERSION + 1 },
      { kind: hello, value: 0 },
      { kind: offer, connection: 1 },
      { kind: withdraw, connection: 1 },
      { kind: 99 },
    ]) {
      const a = open.use(Conversation.connect(path));
      a.send(message);
      assert.equal(await a.next(), hangUp, JSON.stringify(message));
    }
  });

  test('garbage is hung up on, and others are served on', async () => {
    const good = await begin();
    const { client } = await pair();
    for (const bytes of [new Uint8Array(1), new Uint8Array(31), new Uint8Array(33), new Uint8Array(5000).fill(255)]) {
      const a = await begin();
      a.sendBytes(bytes, [client.fd, client.fd]);
      assert.equal(await a.next(), hangUp, `${bytes.length} bytes`);
    }
    const kinds = [{ kind: hello, value: DIRECT_VERSION }, { kind: promote }, { kind: 0 }, { kind: 0xffff_ffff }];
    for (const message of kinds) {
      const a = await begin();
      a.send(message);
      assert.equal(await a.next(), hangUp, JSON.stringify(message));
    }
    const withFds = await begin();
    withFds.send({ kind: withdraw, connection: 1 }, [client.fd]);
    assert.equal(await withFds.next(), hangUp);
    const many = await begin();
    many.send(
      { kind: offer, connection: 1 },
      Array.from({ length: 64 }, () => client.fd),
    );
    assert.equal((await many.expect(decline)).connection, 1);
    const twice = await begin();
    twice.offer(1, client.fd);
    twice.offer(1, client.fd);
    assert.equal(await twice.next(), hangUp);
    assert.deepEqual(await good.settle(), []);
  });

  test('while there are no descriptors for more, offers are declined, programs that come are not heard, and others go on', async () => {
    const { a, b } = await connected();
    const { client, acceptor } = await pair();
    hasRoom = false;
    a.offer(7, client.fd);
    assert.equal((await a.expect(decline)).connection, 7);
    using late = Conversation.connect(path);
    assert.equal(await late.next(), hangUp);
    assert.equal(server.status.connections, 1, 'what is direct stays direct');
    hasRoom = true;
    a.offer(8, client.fd);
    b.offer(8, acceptor.fd);
    await promoted(a, b);
  });

  test('what is no connected TCP socket is declined', async () => {
    const a = await begin();
    using event = EventFd.create();
    using udp = Socket.datagram('ipv4');
    using connectedUdp = Socket.datagram('ipv4');
    connectedUdp.connect(ip('127.0.0.1', 9));
    using fresh = Socket.stream('ipv4');
    using listener = Socket.stream('ipv4');
    listener.bind(ip('127.0.0.1', 0));
    listener.listen();
    using unix = new DisposableStack();
    const [left, right] = Socket.pair();
    unix.use(left);
    unix.use(right);
    const closed = await pair();
    closed.client.shutdown();
    using null_ = Fd.open('/dev/null', 2);
    const wrong = [event, udp, connectedUdp, fresh, listener, left, closed.client, closed.acceptor, null_];
    a.send({ kind: offer, connection: 1000 });
    assert.equal((await a.expect(decline)).connection, 1000);
    for (const [index, { fd }] of wrong.entries()) {
      a.offer(index, fd);
      assert.equal((await a.expect(decline)).connection, index, `offer ${index}`);
    }
    // A mixture of both in one look.
    const { client } = await pair();
    a.offer(50, client.fd);
    a.offer(51, udp.fd);
    a.offer(52, event.fd);
    assert.deepEqual(
      (await a.settle()).map(({ kind, connection }) => [kind, connection]),
      [
        [decline, 51],
        [decline, 52],
      ],
    );
    assert.equal(server.status.waiting, 1);
  });

  test('both ends get one slot of one arena, each as its own party', async () => {
    const [a, b] = [await begin(), await begin()];
    const { client, acceptor } = await pair();
    const before = server.status;
    b.offer(7, acceptor.fd);
    await b.settle();
    assert.equal(server.status.waiting, before.waiting + 1);
    a.offer(3, client.fd);
    const arenas = [await a.expect(arena), await b.expect(arena)] as const;
    assert.equal(arenas[0].arena, arenas[1].arena);
    assert.equal(arenas[0].value, ringBytes);
    const [left, right] = await promoted(a, b);
    assert.deepEqual([left.connection, right.connection], [3, 7]);
    assert.equal(arenas[0].party, left.party);
    assert.deepEqual(
      { ...server.status, declined: 0 },
      { ...before, promoted: before.promoted + 1, waiting: 0, connections: 1, programs: 2, declined: 0 },
    );

    // The same memory at both, and each one's own doorbell is the other's second descriptor.
    const memories = arenas.map(({ fds: [memory] }) => open.use(SharedMemory.open(memory ?? assert.fail())));
    const [mine, theirs] = memories.map(({ buffer }) => new Uint8Array(buffer));
    assert.equal(mine?.length, arenaBytes(ringBytes));
    mine?.fill(7);
    assert.ok(theirs?.every((byte) => byte === 7));
    const doorbells = arenas.map(({ fds: [, own, other] }) =>
      [own, other].map((fd) => open.use(EventFd.adopt((fd ?? assert.fail()).release()))),
    );
    doorbells[0]?.[1]?.signal(3);
    assert.equal(doorbells[1]?.[0]?.take(), 3);
    doorbells[1]?.[1]?.signal(4);
    assert.equal(doorbells[0]?.[0]?.take(), 4);

    // A second connection in the other direction needs no other arena.
    const second = await pair();
    b.offer(8, second.client.fd);
    a.offer(4, second.acceptor.fd);
    const [again] = await promoted(a, b);
    assert.equal(again.arena, left.arena);
    assert.notEqual(again.slot, left.slot);
  });

  test('the desk counts the messages, and its program can only read it', async () => {
    const { a } = await connected();
    assert.equal(a.news, 3);
    await a.settle();
    assert.equal(a.news, 4);
    assert.throws(() => SharedMemory.open(a.desk.duplicateFd()), { code: 'EPERM' });
  });

  test('the daemon keeps no descriptor of a socket: its end is seen at once', async () => {
    const [a, b] = [await begin(), await begin()];
    const { client, acceptor } = await pair();
    a.offer(1, client.fd);
    b.offer(1, acceptor.fd);
    await a.settle();
    client.close();
    const memory = open.use(SharedMemory.create({ sizeBytes: 4096 }));
    await eventually('the acceptor reads the end', () => acceptor.receive(memory, 0, 1) === 0);
  });

  test('a slot that both have withdrawn is used again and was zeroed; until then it is not', async () => {
    const { a, b, arenas, slot } = await connected();
    const memory = open.use(SharedMemory.open(arenas[0].fds[0] ?? assert.fail()));
    const words = new Uint8Array(memory.buffer);
    words.fill(255);
    a.withdraw(1);
    const told = await b.expect(demote);
    assert.deepEqual([told.connection, told.slot, told.party], [2, slot, arenas[1].party]);
    const second = await pair();
    a.offer(3, second.client.fd);
    b.offer(4, second.acceptor.fd);
    assert.notEqual((await promoted(a, b))[0].slot, slot);
    b.withdraw(2);
    await b.settle();
    // The pages of its rings are the system's again.
    const start = 64 * 1024 + 2 * slot * ringBytes;
    assert.ok(words.subarray(start, start + 2 * ringBytes).every((byte) => byte === 0));
    const third = await pair();
    a.offer(5, third.client.fd);
    b.offer(6, third.acceptor.fd);
    const [again] = await promoted(a, b);
    assert.equal(again.slot, slot);
    const at = SLOTS_OFFSET + slot * SLOT_BYTES;
    assert.ok(words.subarray(at, at + SLOT_BYTES).every((byte) => byte === 0));
    assert.equal(words[at - 1], 255);
  });

  test('a program that ends while promoted: the other is told, and its arena comes no more', async () => {
    const { a, b, arenas } = await connected();
    a.close();
    assert.equal((await b.expect(demote)).connection, 2);
    assert.equal((await b.expect(forget)).arena, arenas[0].arena);
    assert.equal(server.status.connections, 1);
    b.withdraw(2);
    await b.settle();
    assert.equal(server.status.connections, 0);
    const next = await begin();
    const { client, acceptor } = await pair();
    b.offer(3, client.fd);
    next.offer(1, acceptor.fd);
    assert.notEqual((await b.expect(arena)).arena, arenas[0].arena);
  });

  test('an offer that was withdrawn, or whose program has ended, is never paired', async () => {
    const [a, b, c] = [await begin(), await begin(), await begin()];
    const { client, acceptor } = await pair();
    a.offer(1, client.fd);
    a.withdraw(1);
    c.offer(1, client.fd);
    await c.settle();
    c.close();
    await eventually('it has ended', () => server.status.programs === 2);
    b.offer(1, acceptor.fd);
    assert.deepEqual(await b.settle(), []);
    // What is not known may be withdrawn: it was declined meanwhile.
    b.withdraw(77);
    // Offered again, it is found.
    a.offer(2, client.fd);
    await a.expect(arena);
    await b.expect(arena);
    await promoted(a, b);
  });

  test('a program that talks to itself stays on TCP, and one end that is offered twice waits once', async () => {
    const [a, b] = [await begin(), await begin()];
    const { client, acceptor } = await pair();
    a.offer(1, client.fd);
    a.offer(2, acceptor.fd);
    assert.deepEqual(
      (await a.settle()).map(({ kind, connection }) => [kind, connection]),
      [
        [decline, 1],
        [decline, 2],
      ],
    );
    a.offer(3, client.fd);
    a.offer(4, client.fd);
    assert.equal((await a.expect(decline)).connection, 4);
    b.offer(1, acceptor.fd);
    await a.expect(arena);
    assert.equal((await a.expect(promote)).connection, 3);
  });

  test('a full arena gets a second one, and at the limit of memory offers are declined', async () => {
    const [a, b] = [await begin(), await begin()];
    const all = await Promise.all(Array.from({ length: pairs + 1 }, pair));
    for (const [index, { client, acceptor }] of all.slice(0, pairs).entries()) {
      a.offer(index, client.fd);
      b.offer(index, acceptor.fd);
    }
    // Each is read for a while, then the other: all is decided when both have come to their end.
    const heard = [...(await a.settle()), ...(await b.settle())];
    const rest = [...(await a.settle()), ...(await b.settle())];
    const got = [...heard, ...rest].filter(({ kind }) => kind === promote);
    assert.equal(got.length, 2 * pairs);
    assert.equal(new Set(got.map((each) => `${each.arena} ${each.slot} ${each.party}`)).size, 2 * pairs);
    assert.equal(new Set(got.map((each) => each.arena)).size, 2);
    const last = all.at(-1) ?? assert.fail();
    a.offer(1000, last.client.fd);
    b.offer(1000, last.acceptor.fd);
    assert.equal((await a.expect(decline)).connection, 1000);
    assert.equal((await b.expect(decline)).connection, 1000);
    a.withdraw(0);
    b.withdraw(0);
    await b.settle();
    await a.settle();
    a.offer(1001, last.client.fd);
    b.offer(1001, last.acceptor.fd);
    assert.equal((await a.expect(promote)).connection, 1001);
  });

  test('a program that offers and does not read is not read from, and gets all its answers when it reads', async () => {
    const [a, other] = [await begin(), await begin()];
    const { client } = await pair();
    const offers = 5000;
    let sent = 0;
    a.pause();
    const sendMore = (): void => {
      while (sent < offers && a.trySend({ kind: offer, connection: sent }, sent === 0 ? [client.fd] : [])) sent++;
    };
    // Until neither side's socket takes any more.
    let before = -1;
    while (before !== sent) {
      before = sent;
      sendMore();
      await other.settle();
    }
    assert.ok(sent < offers, `${sent} of ${offers}`);
    a.resume();
    for (let answers = 0; answers < offers - 1; answers++) {
      sendMore();
      assert.equal((await a.expect(decline)).connection, answers + 1);
    }
    assert.equal(server.status.waiting, 1);
  });

  test('more offers than may wait are declined, and others are served meanwhile', async () => {
    const [a, b] = [await begin(), await begin()];
    const [most, chunk, chunks] = [4096, 100, 42];
    const { client, acceptor } = await pair();
    a.offer(0, client.fd);
    let declined = 0;
    for (let first = 1; first < chunk * chunks; first += chunk) {
      using ends = new DisposableStack();
      const made = await Promise.all(Array.from({ length: chunk }, async () => ends.use(await tcpPair())));
      for (const [index, end] of made.entries()) a.offer(first + index, end.client.fd);
      declined += (await a.settle()).filter(({ kind }) => kind === decline).length;
    }
    assert.equal(declined, 1 + chunk * chunks - most);
    assert.equal(server.status.waiting, most);
    b.offer(1, acceptor.fd);
    await b.expect(arena);
    assert.equal((await b.expect(promote)).connection, 1);
  });

  test('a socket that lingers when its last descriptor is closed holds nobody up', async () => {
    const a = await begin();
    const { client, acceptor } = await pair();
    const memory = open.use(SharedMemory.create({ sizeBytes: 1 << 20 }));
    // SOL_SOCKET, SO_LINGER: struct linger { int l_onoff, l_linger }, in seconds.
    assert.equal(addon.setsockopt(client.fd, 1, 13, new Uint8Array(Int32Array.of(1, 3600).buffer)), 0);
    // Its peer takes no more, so that the end of it does not arrive.
    while (client.send(memory, 0, memory.sizeBytes) > 0);
    a.offer(1, client.fd);
    client.close();
    await a.settle();
    assert.equal(server.status.waiting, 1);
    assert.equal(Fd.closingAside, 1);
    acceptor.resetOnClose();
    acceptor.close();
    await eventually('it lingers no more', () => Fd.closingAside === 0);
  });
});
