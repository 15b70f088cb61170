// Connections between hosts: two daemons find the two ends, and nobody gets between them.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { candidatesOf, proofOf } from './candidates.ts';
import { accepted, connected } from './fixtures/ends.ts';
import { exchange, MeshHost, type PlayedProgram } from './fixtures/mesh-host.ts';
import { messageKinds, WITH_LANE } from './layout.ts';
import type { Identity } from './pairing.ts';

const [x, y] = [0xffff_ffff, 7];
const { arena, decline, promote } = messageKinds;
const ringBytes = 4096;
const other = '0'.repeat(32);

/** What both ends of the connection of `x` and `y` have in common. */
const shared = common(connected(x, y), accepted(x, y));

function common(one: Identity, another: Identity) {
  const keys = candidatesOf(another, ringBytes).map(({ key }) => key);
  return candidatesOf(one, ringBytes).find(({ key }) => keys.includes(key)) ?? assert.fail();
}

/** Hosts a and b, which are up; a has dialed. */
function twoHosts(
  undo: DisposableStack,
  from: readonly string[] = ['a', 'b'],
): Record<'a' | 'b', MeshHost> & Record<'p' | 'q', PlayedProgram> {
  const [a, b] = ['a', 'b'].map((name) => {
    const peers = ['a', 'b'].filter((peer) => peer !== name && from.includes(name));
    return undo.use(new MeshHost(name, { peersFor: () => peers }));
  }) as [MeshHost, MeshHost];
  a.peerUp('b');
  b.peerUp('a');
  return { a, b, p: a.program(), q: b.program() };
}

/** Host b alone, which a has dialed: it answers. */
function answerer(undo: DisposableStack, places?: number): { b: MeshHost; q: PlayedProgram } {
  const b = undo.use(new MeshHost('b', { peersFor: () => ['a'], ...(places !== undefined && { places }) }));
  b.peerUp('a');
  return { b, q: b.program() };
}

/** Host a alone, which has dialed b. */
function dialer(undo: DisposableStack, places?: number): { a: MeshHost; p: PlayedProgram } {
  const a = undo.use(new MeshHost('a', { peersFor: () => ['b'], ...(places !== undefined && { places }) }));
  a.peerUp('b');
  return { a, p: a.program() };
}

describe('two daemons', () => {
  test('both ends are promoted, whoever connected, whoever is offered first, whoever is told', async () => {
    const ends = [
      [connected(x, y), accepted(x, y)],
      [accepted(x, y), connected(x, y)],
      [connected(x, y), connected(y, x)],
    ] as const;
    for (const [left, right] of ends) {
      for (const isFirst of [true, false]) {
        for (const from of [['a', 'b'], ['a'], ['b']]) {
          using undo = new DisposableStack();
          const { a, b, p, q } = twoHosts(undo, from);
          if (isFirst) a.offer(p, 1, left);
          await exchange(a, b);
          b.offer(q, 2, right);
          await exchange(a, b);
          if (!isFirst) a.offer(p, 1, left);
          await exchange(a, b);
          const [[atA = assert.fail()], [atB = assert.fail()]] = [p.promoted(), q.promoted()];
          const { token, key } = common(left, right);
          assert.deepEqual([atA.connection, atA.party, atA.token], [1, 0, token]);
          assert.deepEqual([atB.connection, atB.party, atB.token], [2, 0, token]);
          const [openers, expected] = [a.lanes.of('mirror'), b.lanes.of('mirror')];
          const link = expected[0]?.link;
          assert.deepEqual(openers, [{ ...openers[0], slot: atA.slot, peer: 'b', key, link, isOpener: true }]);
          assert.deepEqual(expected, [{ ...expected[0], slot: atB.slot, peer: 'a', key, link, isOpener: false }]);
          for (const host of [a, b]) {
            const { waiting, mirrored, promoted, connections } = host.promotions.counters;
            assert.deepEqual([waiting, mirrored, promoted, connections], [0, 1, 1, 1]);
          }
        }
      }
    }
  });

  test('many connections take turns on the links, and full arenas get more', async () => {
    using undo = new DisposableStack();
    const { a, b, p, q } = twoHosts(undo);
    const count = 140;
    for (let index = 0; index < count; index++) {
      a.offer(p, index, connected(1000 * index, 5));
      b.offer(q, index, accepted(1000 * index, 5));
    }
    await exchange(a, b);
    const promoted = [p.promoted(), q.promoted()];
    assert.deepEqual(
      promoted.map(({ length }) => length),
      [count, count],
    );
    for (const host of [a, b]) {
      const mirrors = host.lanes.of('mirror');
      assert.equal(new Set(mirrors.map((each) => `${each.arena} ${each.slot}`)).size, count);
      assert.equal(Math.max(...[0, 1, 2].map((link) => mirrors.filter((each) => each.link === link).length)), 47);
      // Links 0 and 2 have one lane, link 1 the other.
      assert.equal(host.lanes.of('arena').length, 3);
      for (const told of host.lanes.told) if (told.kind === 'mirror') assert.equal(told.lane, told.link % 2);
    }
  });

  test('a connection whose ends are both on this host is not told of once it is found', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo);
    const second = a.program();
    a.offer(p, 1, connected(x, y));
    a.offer(second, 1, accepted(x, y));
    assert.equal(p.promoted()[0]?.token, 0n);
    a.hear('b', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'b', 'a'), link: 0 });
    assert.deepEqual((await a.words()).at(-1), { kind: 'directGone', key: shared.key, peer: 'b' });
    assert.deepEqual(a.lanes.told, []);
  });

  test('all peers that may have the other end are told, and those that come up later or again', async () => {
    const peersFor = (host: string) => (host === '10.0.0.2' ? ['b'] : ['b', 'c', 'd']);
    using a = new MeshHost('a', { peersFor });
    a.peerUp('b');
    a.peerUp('c');
    const p = a.program();
    a.offer(p, 1, connected(x, y), '192.0.2.1');
    a.offer(p, 2, connected(1, 2), '10.0.0.2');
    const told = (await a.words()).map(({ peer }) => peer);
    assert.deepEqual(told, ['b', 'b', 'c', 'c', 'b', 'b']);
    a.peerUp('d');
    assert.deepEqual(
      (await a.words()).map(({ peer, key }) => [peer, key]),
      candidatesOf(connected(x, y), ringBytes).map(({ key }) => ['d', key]),
    );
    a.peerDown('b');
    a.peerUp('b');
    assert.equal((await a.keys()).length, 4);
  });

  test('of offers that wait, a peer that comes up is told the newest 1024', async () => {
    using a = new MeshHost('a', { peersFor: () => ['b'] });
    const p = a.program();
    for (let index = 0; index < 1100; index++) a.offer(p, index, connected(1000 * index, 5));
    assert.deepEqual(await a.keys(), []);
    a.peerUp('b');
    const keys = new Set(await a.keys());
    assert.equal(keys.size, 2048);
    const isTold = (index: number) =>
      candidatesOf(connected(1000 * index, 5), ringBytes).some(({ key }) => keys.has(key));
    assert.deepEqual([75, 76, 1099].map(isTold), [false, true, true]);
  });
});

describe('the daemon that answers', () => {
  test('tells of an end when its lanes know it, and promotes it when the dialer has shown its proof', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo);
    b.offer(q, 1, accepted(x, y));
    assert.equal((await b.keys()).length, 2);
    const heard = Promise.withResolvers<void>();
    b.lanes.hearing = heard.promise;
    b.hear('a', { kind: 'directWaits', key: shared.key });
    assert.deepEqual(await b.words(), []);
    assert.deepEqual(
      b.lanes.told.map(({ kind }) => kind),
      ['arena', 'mirror'],
    );
    heard.resolve();
    const [found] = await b.words();
    const proof = proofOf(shared, 'b', 'a');
    assert.deepEqual(found, { kind: 'directFound', key: shared.key, proof, link: 0, peer: 'a' });
    assert.deepEqual(q.heard(), []);
    b.hear('a', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'a', 'b'), link: 0 });
    const [introduced, promoted] = q.heard();
    assert.deepEqual([introduced?.kind, introduced?.token, introduced?.party], [arena, BigInt(WITH_LANE), 0]);
    assert.deepEqual([promoted?.kind, promoted?.token], [promote, shared.token]);
    // Nothing of it is open any more.
    b.hear('a', { kind: 'directGone', key: shared.key });
    assert.deepEqual(b.lanes.of('unmirror'), []);
  });

  test('an end that is gone at the dialer, or of which it shows no proof, waits again', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo, 1);
    b.offer(q, 1, accepted(x, y));
    const relayed = proofOf(shared, 'b', 'a');
    const words = [
      { kind: 'directGone', key: shared.key },
      { kind: 'directFound', key: shared.key, proof: relayed, link: 0 },
      { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'c', 'b'), link: 0 },
      { kind: 'directFound', key: shared.key, proof: other, link: 0 },
    ] as const;
    for (const [index, word] of words.entries()) {
      await b.words();
      b.hear('a', { kind: 'directWaits', key: shared.key });
      assert.equal((await b.words()).length, 1);
      b.hear('a', word);
      assert.equal(b.promotions.counters.waiting, 1);
      // The lane has the slot until it says so.
      assert.deepEqual(b.lanes.of('unmirror').at(-1)?.isEnded, false);
      assert.equal(b.promotions.counters.connections, 1);
      b.unmirrored();
      assert.deepEqual([b.promotions.counters.connections, b.lanes.of('mirror').length], [0, index + 1]);
    }
    assert.deepEqual(q.heard(), []);
    // It is found on its own host as ever.
    const second = b.program();
    b.offer(second, 1, connected(x, y));
    assert.equal(q.promoted().length, 1);
  });

  test('a peer that has not got the end cannot get it by repeating keys', async () => {
    using undo = new DisposableStack();
    const b = undo.use(new MeshHost('b', { peersFor: () => ['a', 'ab'] }));
    b.peerUp('a');
    b.peerUp('ab');
    const q = b.program();
    b.offer(q, 1, accepted(x, y));
    for (const { peer, ...word } of await b.words()) if (peer === 'ab') b.hear('ab', word);
    const [found, ...more] = await b.words();
    assert.ok(found?.kind === 'directFound' && more.length === 0);
    // What it was shown is of no use to it, neither here nor at the host that has the end.
    b.hear('ab', found);
    assert.deepEqual(q.heard(), []);
    const { a, p } = dialer(undo);
    a.peerUp('ab');
    a.offer(p, 1, connected(x, y));
    a.hear('ab', found);
    assert.deepEqual((await a.words()).at(-1), { kind: 'directGone', key: shared.key, peer: 'ab' });
    assert.deepEqual([p.heard(), a.lanes.told], [[], []]);
  });

  test('a dialer that never answers holds no more than its connection, and the end waits again without it', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo);
    b.offer(q, 1, accepted(x, y));
    b.hear('a', { kind: 'directWaits', key: shared.key });
    b.hear('a', { kind: 'directWaits', key: shared.key });
    await b.words();
    assert.equal(b.lanes.of('mirror').length, 1);
    b.peerDown('a');
    assert.equal(b.lanes.of('unmirror').length, 1);
    assert.equal(b.promotions.counters.waiting, 1);
    // Its keys went with it.
    b.peerUp('a');
    assert.equal((await b.keys()).length, 2);
    assert.equal(b.lanes.of('mirror').length, 1);
    b.hear('a', { kind: 'directWaits', key: shared.key });
    assert.equal(b.lanes.of('mirror').length, 2);
  });

  test('at most 1024 slots wait for the word of a peer', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo, 2000);
    for (let index = 0; index < 1030; index++) {
      b.offer(q, index, accepted(1000 * index, 5));
      const { key } = common(connected(1000 * index, 5), accepted(1000 * index, 5));
      b.hear('a', { kind: 'directWaits', key });
    }
    assert.equal(b.lanes.of('mirror').length, 1024);
    assert.equal(b.promotions.counters.waiting, 6);
    // The others have their turn when it has said something to one.
    const [first = assert.fail()] = b.lanes.of('mirror');
    b.hear('a', { kind: 'directGone', key: first.key });
    assert.equal(b.lanes.of('mirror').length, 1025);
    b.promotions.withdraw(q.program, 1);
    assert.equal(b.lanes.of('mirror').length, 1026);
  });

  test('keys of ends that come later are kept, the newest 4096 of a peer', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo);
    const keyOf = (index: number) => index.toString(16).padStart(32, '0');
    b.hear('a', { kind: 'directWaits', key: shared.key });
    for (let index = 0; index < 4095; index++) b.hear('a', { kind: 'directWaits', key: keyOf(index) });
    b.offer(q, 1, accepted(x, y));
    assert.equal(b.lanes.of('mirror').length, 1);
    b.promotions.withdraw(q.program, 1);
    b.hear('a', { kind: 'directWaits', key: shared.key });
    for (let index = 0; index < 4096; index++) b.hear('a', { kind: 'directWaits', key: keyOf(index) });
    b.offer(q, 2, accepted(x, y));
    assert.equal(b.lanes.of('mirror').length, 1);
  });

  test('while no link is up nothing is answered, and all that waits is when one is', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo);
    b.links = [];
    b.offer(q, 1, accepted(x, y));
    b.hear('a', { kind: 'directWaits', key: shared.key });
    assert.deepEqual(b.lanes.told, []);
    b.links = [5];
    b.promotions.hear({ kind: 'linkUp', peer: 'a' });
    assert.deepEqual(
      b.lanes.of('mirror').map(({ link }) => link),
      [5],
    );
  });

  test('an offer that is withdrawn while the dialer is asked leaves its slot, and nothing is told of it', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo);
    b.offer(q, 1, accepted(x, y));
    await b.words();
    b.hear('a', { kind: 'directWaits', key: shared.key });
    b.promotions.withdraw(q.program, 1);
    assert.deepEqual(await b.words(), []);
    assert.deepEqual(
      b.lanes.of('unmirror').map(({ isEnded }) => isEnded),
      [false],
    );
    b.hear('a', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'a', 'b'), link: 0 });
    assert.deepEqual(q.heard(), []);
    b.unmirrored();
    assert.equal(b.promotions.counters.connections, 0);
  });

  test('where there is no slot left the offer is declined', async () => {
    using undo = new DisposableStack();
    const { b, q } = answerer(undo, 0);
    b.offer(q, 1, accepted(x, y));
    await b.words();
    b.hear('a', { kind: 'directWaits', key: shared.key });
    assert.deepEqual(
      q.heard().map(({ kind }) => kind),
      [decline],
    );
    assert.deepEqual(await b.words(), []);
    assert.deepEqual(b.promotions.counters, { waiting: 0, connections: 0, mirrored: 0, promoted: 0, declined: 1 });
    // The same when the key was there before.
    b.offer(q, 2, accepted(x, y));
    assert.deepEqual(await b.words(), []);
    assert.equal(q.heard().length, 1);
  });
});

describe('the daemon that dialed', () => {
  test('an end that is not here, or a wrong proof, is gone, and what waits goes on waiting', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo);
    const found = { kind: 'directFound', key: shared.key, link: 0 } as const;
    const proof = proofOf(shared, 'b', 'a');
    a.hear('b', { ...found, proof });
    a.offer(p, 1, connected(x, y));
    await a.words();
    a.hear('b', { ...found, proof: other });
    a.hear('b', { ...found, proof: proofOf(shared, 'a', 'b') });
    a.hear('b', { ...found, key: other, proof });
    assert.deepEqual(
      (await a.words()).map(({ kind, key }) => [kind, key]),
      [
        ['directGone', shared.key],
        ['directGone', shared.key],
        ['directGone', other],
      ],
    );
    assert.deepEqual([a.promotions.counters.waiting, p.heard(), a.lanes.told], [1, [], []]);
    a.hear('b', { ...found, proof });
    assert.equal(p.promoted().length, 1);
  });

  test('tells a peer of an end whose key that peer has told, now or before', async () => {
    using undo = new DisposableStack();
    const a = undo.use(new MeshHost('a'));
    a.peerUp('b');
    const p = a.program();
    a.hear('b', { kind: 'directWaits', key: shared.key });
    assert.deepEqual(await a.words(), []);
    a.offer(p, 1, connected(x, y));
    assert.equal((await a.keys()).length, 2);
    a.hear('b', { kind: 'directWaits', key: shared.key });
    assert.equal((await a.keys()).length, 2);
    assert.deepEqual(a.lanes.told, []);
  });

  test('an offer that was withdrawn is gone', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo);
    a.offer(p, 1, connected(x, y));
    a.promotions.withdraw(p.program, 1);
    a.hear('b', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'b', 'a'), link: 0 });
    assert.deepEqual((await a.words()).at(-1)?.kind, 'directGone');
    assert.deepEqual(p.heard(), []);
  });

  test('a link that is not up here is none, and the peer is told again when it is', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo);
    a.offer(p, 1, connected(x, y));
    await a.words();
    const found = { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'b', 'a') } as const;
    a.hear('b', { ...found, link: 63 });
    assert.deepEqual((await a.words())[0]?.kind, 'directGone');
    a.links = [63];
    a.promotions.hear({ kind: 'linkUp', peer: 'b' });
    assert.equal((await a.keys()).length, 2);
    a.promotions.hear({ kind: 'linkUp', peer: 'b' });
    assert.deepEqual(await a.words(), []);
    a.hear('b', { ...found, link: 63 });
    assert.equal(p.promoted().length, 1);
  });

  test('where there is no slot left the offer is declined, and the peer hears that it is gone', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo, 0);
    a.offer(p, 1, connected(x, y));
    await a.words();
    a.hear('b', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'b', 'a'), link: 0 });
    assert.deepEqual((await a.words())[0]?.kind, 'directGone');
    assert.deepEqual(
      p.heard().map(({ kind }) => kind),
      [decline],
    );
  });

  test('a peer that is not up is not heard', async () => {
    using undo = new DisposableStack();
    const { a, p } = dialer(undo);
    a.offer(p, 1, connected(x, y));
    a.peerDown('b');
    await a.words();
    a.hear('b', { kind: 'directFound', key: shared.key, proof: proofOf(shared, 'b', 'a'), link: 0 });
    a.promotions.hear({ kind: 'linkUp', peer: 'b' });
    assert.deepEqual([await a.words(), p.heard(), a.lanes.told], [[], [], []]);
  });
});

describe('a mirrored connection', () => {
  /** A program of host a with so many of them. */
  async function mirrored(undo: DisposableStack, count: number, places?: number) {
    const { a, p } = dialer(undo, places);
    const candidates = Array.from({ length: count }, (_, index) =>
      common(connected(1000 * index, 5), accepted(1000 * index, 5)),
    );
    for (const [index, candidate] of candidates.entries()) {
      a.offer(p, index, connected(1000 * index, 5));
      a.hear('b', { kind: 'directFound', key: candidate.key, proof: proofOf(candidate, 'b', 'a'), link: 0 });
    }
    await a.words();
    assert.equal(p.promoted().length, count);
    return { a, p };
  }

  test('its slot is used again when its program has withdrawn and its lane has left it, and not before', async () => {
    using undo = new DisposableStack();
    const { a, p } = await mirrored(undo, 1, 1);
    const again = common(connected(9, 9), accepted(9, 9));
    const found = { kind: 'directFound', key: again.key, proof: proofOf(again, 'b', 'a'), link: 0 } as const;
    a.promotions.withdraw(p.program, 0);
    const [{ slot, isEnded } = assert.fail()] = a.lanes.of('unmirror');
    assert.equal(isEnded, false);
    assert.deepEqual([a.promotions.counters.mirrored, a.promotions.counters.connections], [0, 1]);
    a.offer(p, 1, connected(9, 9));
    a.hear('b', found);
    assert.equal(p.heard()[0]?.kind, decline);
    a.unmirrored();
    a.offer(p, 2, connected(9, 9));
    a.hear('b', found);
    assert.equal(p.promoted()[0]?.slot, slot);
    assert.equal(a.lanes.of('arena').length, 1);
    // What a lane says twice, or of a slot that it has not got, changes nothing.
    a.promotions.hear({ kind: 'unmirrored', arena: 99, slot: 0 });
    a.promotions.hear({ kind: 'unmirrored', arena: a.lanes.of('arena')[0]?.arena ?? 0, slot: slot + 1 });
    assert.equal(a.promotions.counters.connections, 1);
  });

  test('a program that ends: the lane leaves all its slots, and then the arena', async () => {
    using undo = new DisposableStack();
    const { a, p } = await mirrored(undo, 2);
    a.promotions.withdraw(p.program, 0);
    const closed = a.promotions.end(p.program);
    assert.equal(closed.length, 1);
    assert.deepEqual(
      a.lanes.of('unmirror').map(({ isEnded }) => isEnded),
      [false, true],
    );
    const [first = assert.fail(), second = assert.fail()] = a.lanes.of('unmirror');
    a.promotions.hear({ ...first, kind: 'unmirrored' });
    assert.deepEqual(a.lanes.of('arenaGone'), []);
    assert.deepEqual([a.promotions.counters.mirrored, a.promotions.counters.connections], [0, 1]);
    a.promotions.hear({ ...second, kind: 'unmirrored' });
    assert.deepEqual(
      a.lanes.of('arenaGone').map((each) => each.arena),
      [closed[0]?.id],
    );
    assert.equal(a.promotions.counters.connections, 0);
  });

  test('a program that ends after it has left all: the arena is gone at once', async () => {
    using undo = new DisposableStack();
    const { a, p } = await mirrored(undo, 1);
    a.promotions.withdraw(p.program, 0);
    a.unmirrored();
    a.promotions.end(p.program);
    assert.equal(a.lanes.of('arenaGone').length, 1);
  });

  test('it outlives the control connection', async () => {
    using undo = new DisposableStack();
    const { a, p } = await mirrored(undo, 1);
    a.peerDown('b');
    assert.deepEqual([p.heard(), a.lanes.of('unmirror')], [[], []]);
  });
});
