// Runs in a process of its own: it looks at all timers and sockets of its process.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { freePort } from '../../../workbench/worlds/free-port.ts';
import { parseIpEndpoint } from '../../steering/index.ts';
import { Party, type PartyOptions, peer } from './fixtures/party.ts';
import { helloLine, Parrot, RawPeer } from './fixtures/raw-peer.ts';
import { makeNonce } from './handshake.ts';

/**
 * Two daemons that know each other, at ports that the kernel chose: nobody else can have taken
 * them.
 */
async function startPair(): Promise<AsyncDisposableStack & { a: Party; b: Party }> {
  await using undo = new AsyncDisposableStack();
  const a = undo.use(await Party.start({ name: 'a', peers: [] }));
  const b = undo.use(await Party.start({ name: 'b', peers: [] }));
  // First the one that is dialed.
  b.plane.setPeers([peer('a', a.port)]);
  a.plane.setPeers([peer('b', b.port)]);
  await Promise.all([a.untilUp('b'), b.untilUp('a')]);
  return Object.assign(undo.move(), { a, b });
}

describe('the control plane', { concurrency: true }, () => {
  test('names that are none or come twice, no address and impossible options are said at once', async () => {
    const start = async (options: Partial<PartyOptions>): Promise<void> => {
      await using _party = await Party.start({ name: 'a', peers: [], ...options });
    };
    await assert.rejects(start({ name: 'a b' }), /invalid node name "a b"/);
    await assert.rejects(start({ peers: [peer('a', 1)] }), /two nodes are called a/);
    await assert.rejects(start({ peers: [peer('b', 1), peer('b', 2)] }), /two nodes are called b/);
    await assert.rejects(start({ peers: [peer('b', 0)] }), /peer b: '127.0.0.1' port 0 is not an address to dial/);
    await assert.rejects(start({ listen: [] }), /no address for peers to connect to/);
    await assert.rejects(start({ heartbeatMs: 100, deadMs: 150 }), /less than two heartbeats/);
    await assert.rejects(
      start({ hello: { incarnation: 'x', lanes: 1, wires: [], admission: 'packets' as const } }),
      /incarnation/,
    );
    await assert.rejects(
      start({ hello: { incarnation: makeNonce(), lanes: 65, wires: [], admission: 'packets' as const } }),
      /lanes/,
    );
    await assert.rejects(start({ security: { kind: 'tls', ca: '', cert: '', key: '' } }), {
      code: 'MILLRACE_ERR_USAGE',
      message: /the CA, certificate, key or revocation list cannot be used/,
    });
  });

  test('a port that is in use names its key in the config, and the other addresses are given back', async () => {
    await using party = await Party.start({ name: 'a', peers: [] });
    const other = await freePort();
    const listen = [other, party.port].map((port) => ({ host: '127.0.0.1', port }));
    await assert.rejects(Party.start({ name: 'b', peers: [], listen }), /EADDRINUSE.*listen\.controlPort/);
    await using _other = await Party.start({ name: 'b', peers: [], port: other });
  });

  test('words on direct connections come one by one, and to nobody they are lost', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    const [key, proof] = ['c'.repeat(32), 'd'.repeat(32)];
    const words = [
      { kind: 'directGone', key },
      { kind: 'directFound', key, proof, link: 63 },
      ...Array.from({ length: 100 }, (_, index) => ({
        kind: 'directWaits' as const,
        key: index.toString(16).padStart(32, '0'),
      })),
    ] as const;
    a.plane.tellDirect('nobody', words[0]);
    for (const word of words) a.plane.tellDirect('b', word);
    const heard = () => b.news.filter((line) => line.startsWith('a {'));
    await eventually('all are heard', () => heard().length === words.length);
    assert.deepEqual(
      heard().map((line) => JSON.parse(line.slice(2))),
      words,
    );
    b.plane.tellDirect('a', words[1]);
    await eventually('the other way, too', () => a.news.at(-1) === `b ${JSON.stringify(words[1])}`);
  });

  test('what is sent to nobody, or is too large, is said; closing twice is harmless', async () => {
    await using pair = await startPair();
    const { a } = pair;
    assert.equal(a.sendLink('nobody', 0, {}), false);
    assert.throws(() => a.sendLink('b', 0, { text: 'x'.repeat(20_000) }), { code: 'MILLRACE_ERR_USAGE' });
    assert.throws(() => a.sendLink('b', 64, {}), { code: 'MILLRACE_ERR_USAGE' });
    assert.equal(a.stateOf('b'), 'up');
    await Promise.all([a.plane.close(), a.plane.close()]);
    assert.equal(a.sendLink('b', 0, {}), false);
    assert.throws(() => a.plane.setPeers([]), { code: 'MILLRACE_ERR_CLOSED' });
  });

  test('both say hello, the smaller name dials, and links and listeners come across', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    assert.deepEqual(a.news, ['b up 2 shm,tcp dialed']);
    assert.deepEqual(b.news.splice(0), ['a up 2 shm,tcp accepted']);
    a.plane.setListeners(() => ['10.0.0.1:80', '[fd00::1]:80'].map(parseIpEndpoint));
    a.plane.setListeners(() => ['10.0.0.1:80', '10.0.0.1:81'].map(parseIpEndpoint));
    assert.equal(a.sendLink('b', 3, { qp: 17 }), true);
    await eventually('b heard', () => b.news.length === 5);
    assert.deepEqual(b.news.splice(0), [
      'a +10.0.0.1:80',
      'a +[fd00::1]:80',
      'a -[fd00::1]:80',
      'a +10.0.0.1:81',
      'a link 3 {"qp":17}',
    ]);
    assert.equal(b.sendLink('a', 63, { yes: true }), true);
    await eventually('a heard', () => a.news.at(-1) === 'b link 63 {"yes":true}');
    await eventually('a pulse was felt', () => (b.connectionTo('a')?.roundTripMs ?? -1) >= 0);
    assert.equal(b.connectionTo('a')?.isSecure, false);
    await a.plane.close('draining');
    await eventually('b heard bye', () => b.stateOf('a') === 'down');
    assert.deepEqual(b.news, ['a -10.0.0.1:80', 'a -10.0.0.1:81', 'a down: bye: draining']);
    assert.deepEqual([...a.errors, ...b.errors], []);
  });

  test('which listeners have the library comes after they are announced, and goes before', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    b.news.splice(0);
    const both = ['10.0.0.1:80', '10.0.0.1:81'].map(parseIpEndpoint);
    const elsewhere = parseIpEndpoint('10.0.0.1:82');
    a.plane.setListeners(
      () => both,
      () => [...both.slice(1), elsewhere],
    );
    a.plane.setListeners(
      () => both,
      () => both.slice(0, 1),
    );
    a.plane.setListeners(() => both.slice(1));
    await eventually('b heard', () => b.news.length === 7);
    assert.deepEqual(b.news.splice(0), [
      'a +10.0.0.1:80',
      'a +10.0.0.1:81',
      'a +library 10.0.0.1:81',
      'a -library 10.0.0.1:81',
      'a +library 10.0.0.1:80',
      'a -library 10.0.0.1:80',
      'a -10.0.0.1:80',
    ]);
    a.plane.setListeners(
      () => both,
      () => both,
    );
    await eventually('b heard', () => b.news.length === 3);
    b.news.splice(0);
    await a.plane.close('draining');
    await eventually('b heard bye', () => b.stateOf('a') === 'down');
    assert.deepEqual(b.news.slice(0, 2).sort(), ['a -library 10.0.0.1:80', 'a -library 10.0.0.1:81']);
  });

  test('each peer is told its own listeners, the difference when they change, and all when it connects again', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    await using c = await Party.start({ name: 'c', peers: [peer('a', a.port)] });
    a.plane.setPeers([peer('b', b.port), peer('c', c.port)]);
    await Promise.all([a.untilUp('c'), c.untilUp('a')]);
    for (const party of [b, c]) party.news.splice(0);
    const lists = new Map([
      ['b', ['10.0.0.1:80', '10.0.0.1:81']],
      ['c', ['10.0.0.1:81']],
    ]);
    const tell = (): void => a.plane.setListeners((name) => (lists.get(name) ?? []).map(parseIpEndpoint));
    const both = async (...news: readonly (readonly string[])[]): Promise<void> => {
      for (const [index, party] of [b, c].entries()) {
        const expected = [...(news[index] ?? []), 'a link 1 {}'];
        a.sendLink(index === 0 ? 'b' : 'c', 1, {});
        await eventually('it heard all', () => party.news.at(-1) === 'a link 1 {}');
        assert.deepEqual(party.news.splice(0), expected);
      }
    };
    tell();
    await both(['a +10.0.0.1:80', 'a +10.0.0.1:81'], ['a +10.0.0.1:81']);
    lists.set('b', ['10.0.0.1:80']).set('c', ['10.0.0.1:80', '10.0.0.1:81']);
    tell();
    await both(['a -10.0.0.1:81'], ['a +10.0.0.1:80']);
    tell();
    await both([], []);
    a.plane.setPeers([peer('b', b.port)]);
    await eventually('c heard bye', () => c.stateOf('a') === 'down');
    c.news.splice(0);
    a.plane.setPeers([peer('b', b.port), peer('c', c.port)]);
    await c.untilUp('a');
    await both([], ['a up 2 shm,tcp accepted', 'a +10.0.0.1:80', 'a +10.0.0.1:81']);
  });

  test('it does not matter who starts first, and one that cannot be dialed says why', async () => {
    for (const [first, second] of [
      ['a', 'b'],
      ['b', 'a'],
    ] as const) {
      const ports = { a: await freePort(), b: await freePort() };
      const start = (name: 'a' | 'b', other: 'a' | 'b') =>
        Party.start({ name, peers: [peer(other, ports[other])], port: ports[name] });
      await using early = await start(first, second);
      if (first === 'a') await eventually('a failed to dial', () => early.reasonOf('b').startsWith('ECONNREFUSED'));
      else assert.equal(early.stateOf('a'), undefined, 'it waits to be dialed');
      await using late = await start(second, first);
      await Promise.all([early.untilUp(second), late.untilUp(first)]);
      assert.deepEqual([...early.errors, ...late.errors], []);
    }
  });

  test('a set of listeners larger than a line reaches who connects later, in full', async () => {
    const [portA, portB] = [await freePort(), await freePort()];
    await using a = await Party.start({ name: 'a', peers: [peer('b', portB)], port: portA });
    a.plane.setListeners(() => Array.from({ length: 5000 }, (_, index) => parseIpEndpoint(`10.0.0.1:${index + 1}`)));
    await using b = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB });
    await eventually('b heard all', () => b.news.filter((line) => line.startsWith('a +')).length === 5000);
  });

  test('a daemon that starts again is called again, with what listens here and its new incarnation', async () => {
    const [portA, portB] = [await freePort(), await freePort()];
    const incarnations = [makeNonce(), makeNonce()];
    await using a = await Party.start({ name: 'a', peers: [peer('b', portB)], port: portA });
    a.plane.setListeners(() => [parseIpEndpoint('10.0.0.1:80')]);
    for (const incarnation of incarnations) {
      const hello = { incarnation, lanes: 1, wires: [], admission: 'packets' as const };
      await using b = await Party.start({ name: 'b', peers: [peer('a', portA)], port: portB, hello });
      await eventually('b heard what listens at a', () => b.news.includes('a +10.0.0.1:80'));
      await a.untilUp('b');
    }
    await eventually('a heard bye', () => a.stateOf('b') === 'down');
    const once = ['b up 1  dialed', 'b down: bye: shutdown'];
    assert.deepEqual(a.news, [...once, ...once]);
    assert.deepEqual(a.incarnations, incarnations);
  });

  test('a dialer that connects again takes the place of its old connection', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)] });
    using first = await new RawPeer(b.port).greet('a');
    first.say('{"kind":"announce","endpoints":["10.0.0.1:80"]}\n');
    await eventually('the first is up', () => b.news.length === 2);
    using second = await new RawPeer(b.port).greet('a');
    await eventually('the second is up', () => b.news.length === 5);
    assert.deepEqual(b.news.slice(2), ['a -10.0.0.1:80', 'a down: the peer connected again', 'a up 1  accepted']);
    assert.match((await first.hear('bye')).reason, /replaced/);
    first.say('{"kind":"announce","endpoints":["10.0.0.1:81"]}\n');
    second.say('{"kind":"announce","endpoints":["10.0.0.1:82"]}\n');
    await eventually('only the second counts', () => b.news.length === 6);
    assert.equal(b.news.at(-1), 'a +10.0.0.1:82');
  });

  test('a connection that is lost is made again; one that was dropped, too', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    b.connectionTo('a')?.refuse('index past the ring');
    assert.equal(b.news.at(-1), 'a down: was refused: index past the ring');
    await eventually('both came back', () => b.news.at(-1)?.startsWith('a up') === true);
    await a.untilUp('b');
    assert.ok(a.news.includes('b down: refused this daemon: index past the ring'));
    await a.untilError(/^peer b at 127.0.0.1 port \d+ refused this daemon: index past the ring$/);
    await b.untilError(/^peer a at 127.0.0.1 port \d+ was refused: index past the ring$/);
  });

  test('peers come, go, and move while the others stay up', async () => {
    await using pair = await startPair();
    const { a, b } = pair;
    const [portC, portD] = [await freePort(), await freePort()];
    const known = [peer('b', b.port)];
    const fromA = [peer('a', a.port)];
    await using c = await Party.start({ name: 'c', peers: fromA, port: portC });
    a.plane.setPeers([...known, peer('c', portC)]);
    await Promise.all([a.untilUp('c'), c.untilUp('a')]);
    a.plane.setPeers([...known, { ...peer('c', portC), source: 'etcd' }]);
    assert.equal(a.stateOf('c'), 'up', 'the same address');
    {
      await using moved = await Party.start({ name: 'c', peers: fromA, port: portD });
      a.plane.setPeers([...known, peer('c', portD)]);
      assert.equal(a.news.at(-1), 'c down: bye: the address of the peer has changed');
      await Promise.all([a.untilUp('c'), moved.untilUp('a')]);
      a.plane.setPeers(known);
      assert.equal(a.news.at(-1), 'c down: bye: removed from the peers');
      await eventually('c heard bye', () => moved.stateOf('a') === 'down');
    }
    assert.equal(a.stateOf('b'), 'up');
    b.plane.setPeers([peer('a', a.port, '127.0.0.2')]);
    assert.equal(b.news.at(-1), 'a down: bye: the address of the peer has changed');
    await b.untilError(/a is expected from 127.0.0.2/);
    b.plane.setPeers([]);
    await b.untilError(/no peer is called a here/);
    b.plane.setPeers(fromA);
    await Promise.all([a.untilUp('b'), b.untilUp('a')]);
    assert.throws(() => b.plane.setPeers([peer('a', 1), peer('a', 2)]), { code: 'MILLRACE_ERR_USAGE' });
    assert.equal(b.stateOf('a'), 'up');
  });

  test('a peer that falls silent is gone, on either side', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)], heartbeatMs: 20, deadMs: 100 });
    using raw = await new RawPeer(b.port).greet('a');
    await eventually('it is up', () => b.news.length === 1);
    await eventually('it is gone', () => b.news.length === 2);
    assert.equal(b.news.at(-1), 'a down: silent for 100 ms');
    await eventually('it is hung up on', () => raw.isClosed);
    await using parrot = await Parrot.start(helloLine('b', { nonce: makeNonce() }));
    await using a = await Party.start({ name: 'a', peers: [peer('b', parrot.port)], heartbeatMs: 20, deadMs: 100 });
    await eventually('it is up, gone, and called again', () => a.news.length >= 3);
    assert.deepEqual(a.news.slice(0, 3), ['b up 1  dialed', 'b down: silent for 100 ms', 'b up 1  dialed']);
  });

  test('IPv6 dialers are known by their address, too, and by all the addresses of a host', async () => {
    const port = await freePort();
    const listen = ['127.0.0.1', '::1'].map((host) => ({ host, port: 0 }));
    await using b = await Party.start({ name: 'b', peers: [peer('a', port, '0:0:0:0:0:0:0:1')], listen });
    const portOfB = b.plane.addresses.find(({ host }) => host === '::1')?.port ?? 0;
    await using a = await Party.start({
      name: 'a',
      peers: [peer('b', portOfB, '::1')],
      listen: [{ host: '::1', port }],
    });
    await Promise.all([a.untilUp('b'), b.untilUp('a')]);
  });
});

describe('a closed control plane', () => {
  test('leaves nothing behind, in the middle of whatever it did', async () => {
    const held = (): string =>
      process
        .getActiveResourcesInfo()
        .filter((kind) => kind.startsWith('TCP') || kind === 'Timeout')
        .sort()
        .join();
    {
      await using mute = await Parrot.start('');
      await using pair = await startPair();
      const { a, b } = pair;
      using raw = new RawPeer(b.port);
      a.plane.setPeers([peer('b', b.port), peer('mute', mute.port), peer('nobody', await freePort())]);
      b.connectionTo('a')?.refuse('a reason');
      await eventually('the raw peer is connected', () => raw.socket.readyState === 'open');
    }
    await eventually('all is given back', () => held() === '');
  });
});
