import assert from 'node:assert/strict';
import { connect, type Socket } from 'node:net';
import { describe, test } from 'node:test';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { freePort } from '../../../workbench/worlds/free-port.ts';
import { MAX_WAITING } from './control-server.ts';
import { MAX_ENDPOINTS_PER_PEER } from './control-spec.ts';
import { Party, peer } from './fixtures/party.ts';
import { helloLine, Parrot, RawPeer } from './fixtures/raw-peer.ts';
import { makeNonce } from './handshake.ts';

const lines = (...bodies: readonly object[]): string => bodies.map((body) => `${JSON.stringify(body)}\n`).join('');

// Concurrently: one of them takes as long as a daemon waits for a hello.
describe('a hostile peer', { concurrency: true }, () => {
  test('invalid lines, unknown peers and false names are refused with a reason before anything is believed', async () => {
    const peers = [
      peer('a', 1),
      peer('far', 9, '192.0.2.7'),
      peer('home', 9, 'localhost'),
      peer('z', await freePort()),
    ];
    await using party = await Party.start({ name: 'm', peers });
    for (const [words, reason] of [
      ['GET / HTTP/1.1\r\n\r\n', /not JSON/],
      ['\0\0\0\0\n', /not JSON/],
      [lines({ kind: 'announce', endpoints: ['10.0.0.1:80'] }), /the first message is not a hello/],
      [helloLine('nobody'), /no peer is called nobody here/],
      [helloLine('far'), /far is expected from 192.0.2.7/],
      [helloLine('home'), /without TLS a peer has to be known by its IP address/],
      [helloLine('z'), /z dialed m: the daemon with the smaller name has to dial/],
      [helloLine('m'), /no peer is called m here/],
      [helloLine('a', { version: 1 }), /its version is 1; expected 7/],
      [helloLine('a', { padding: 'x'.repeat(70_000) }), /a line of more than/],
      ['x'.repeat(300_000), /a line of more than/],
      [helloLine('a') + helloLine('a'), /a second hello/],
      [
        helloLine('a') + lines({ kind: 'announce', endpoints: ['10.0.0.1:80'] }),
        /the message after the hello is not a proof/,
      ],
      [helloLine('a') + lines({ kind: 'proof', nonce: makeNonce() }), /the proof is of another connection/],
    ] as const) {
      using raw = new RawPeer(party.port).say(words);
      assert.match(await raw.untilRefused(), reason);
      await party.untilError(new RegExp(`^a connection from 127.0.0.1 was refused: .*${reason.source}`));
    }
    assert.deepEqual(party.news, []);
    assert.equal(party.stateOf('a'), undefined);
  });

  test('a recording of a whole conversation is of no use', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)] });
    const hello = helloLine('a');
    using honest = new RawPeer(b.port).say(hello);
    const proof = lines({ kind: 'proof', nonce: (await honest.hear('hello')).nonce });
    honest.say(proof);
    await b.untilUp('a');
    using replay = new RawPeer(b.port).say(hello + proof + lines({ kind: 'bye', reason: 'x' }));
    assert.match(await replay.untilRefused(), /a replayed one/);
    assert.equal(b.stateOf('a'), 'up');
  });

  test('a peer that breaks the protocol is refused and loses what it said; the other peer does not notice', async () => {
    await using m = await Party.start({ name: 'm', peers: [peer('a', 1), peer('b', 1)] });
    using honest = await new RawPeer(m.port).greet('b');
    await m.untilUp('b');
    const tooMany = Array.from({ length: 17 }, (_, line) => ({
      kind: 'announce',
      endpoints: Array.from({ length: 1000 }, (_, at) => `10.0.${line}.${at >> 8}:${(at & 255) + 1}`),
    }));
    assert.ok(tooMany.length * 1000 > MAX_ENDPOINTS_PER_PEER);
    for (const [words, reason] of [
      [helloLine('a'), /a second hello/],
      [lines({ kind: 'proof', nonce: makeNonce() }), /a proof that nobody asked for/],
      [lines({ kind: 'what' }), /its kind is "what"; expected hello or proof/],
      [lines({ kind: 'pong', number: 4711 }), /a pong without a ping/],
      [lines(...tooMany), /more than 16384 endpoints/],
      [
        lines({ kind: 'announce', endpoints: Array(1001).fill('10.0.0.1:80') }),
        /endpoints is a list of 1001; expected a list of 0 to 1000/,
      ],
      [lines({ kind: 'announce', endpoints: ['\u001b[2J:80'] }), /endpoints\[0\]: .*':80' is no address and port/],
      [lines({ kind: 'link', link: 0, body: { text: 'x'.repeat(17_000) } }), /body has 17011 bytes/],
      [lines({ kind: 'link', link: 0, body: 'text' }), /body is "text"; expected an object/],
      ['x'.repeat(70_000), /a line of more than/],
      [lines({ kind: 'ping', number: 1 }).repeat(10_000), /more than 1024 lines a second/],
    ] as const) {
      using hostile = await new RawPeer(m.port).greet('a');
      hostile.say(lines({ kind: 'announce', endpoints: ['10.9.9.9:99'] }));
      await eventually('it is believed', () => m.news.at(-1) === 'a +10.9.9.9:99');
      hostile.say(words);
      assert.match(await hostile.untilRefused(), reason);
      await eventually('it is down', () => m.news.at(-1)?.startsWith('a down: was refused: ') === true);
      assert.ok(m.news.includes('a -10.9.9.9:99'));
      await m.untilError(new RegExp(`^peer a at 127.0.0.1 port 1 was refused: .*${reason.source}`));
      m.news.length = 0;
    }
    honest.say(lines({ kind: 'link', link: 1, body: { still: 'here' } }));
    await eventually('the other is heard', () => m.news.at(-1) === 'b link 1 {"still":"here"}');
    assert.equal(m.sendLink('b', 1, { same: true }), true);
    await honest.hear('link');
  });

  test('a peer that does not read is dropped before it fills the memory', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)] });
    using deaf = await new RawPeer(b.port).greet('a');
    await b.untilUp('a');
    deaf.socket.pause();
    const body = { text: 'x'.repeat(16_000) };
    let sent = 0;
    // The kernel takes a few megabytes, too.
    while (b.sendLink('a', 0, body)) if (++sent % 64 === 0) await new Promise(setImmediate);
    assert.equal(b.news.at(-1), 'a down: the peer does not read');
    assert.ok(sent * 16_000 < 64 * 1024 * 1024, `${sent} messages were held`);
  });

  test('connections that say nothing are limited in number, and a peer gets in all the same', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)] });
    const idle = Array.from({ length: 3 * MAX_WAITING }, () => connect({ host: '127.0.0.1', port: b.port }));
    let ended = 0;
    for (const socket of idle) {
      socket.on('error', () => {});
      socket.on('close', () => ended++);
      // One that speaks slowly is no better than a mute one.
      socket.write('{');
      socket.resume();
    }
    await eventually('most are sent away at once', () => ended >= 2 * MAX_WAITING);
    await b.untilError(/more than 64 connections whose peers have not said who they are/);
    let attempts = 0;
    while (b.stateOf('a') !== 'up' && attempts++ < 100) {
      using peerA = new RawPeer(b.port).say(helloLine('a'));
      await eventually('it is answered or sent away', () => peerA.isClosed || peerA.heard.includes('nonce'));
      if (peerA.isClosed) continue;
      peerA.say(lines({ kind: 'proof', nonce: (await peerA.hear('hello')).nonce }));
      await b.untilUp('a');
    }
    assert.equal(b.news[0], 'a up 1  accepted');
    for (const socket of idle) socket.destroy();
  });

  test('connections from elsewhere that say nothing keep no peer out: each address of a peer has room of its own', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1, '127.0.0.2')] });
    const idle = Array.from({ length: MAX_WAITING + 1 }, () => connect({ host: '127.0.0.1', port: b.port }));
    for (const socket of idle) socket.on('error', () => {}).resume();
    await b.untilError(/a connection from 127\.0\.0\.1 was refused: more than 64 connections/);
    const listen = [{ host: '127.0.0.2', port: 0 }];
    await using a = await Party.start({ name: 'a', listen, peers: [peer('b', b.port)] });
    await a.untilUp('b');
    assert.equal(a.errors.length, 0);
    for (const socket of idle) socket.destroy();
  });

  test('connections from one address that come without end keep no peer of another address out', async () => {
    await using b = await Party.start({ name: 'b', peers: [peer('a', 1)] });
    const mute = new Set<Socket>();
    let isOver = false;
    let closed = 0;
    const flood = (): void => {
      if (isOver) return;
      const socket = connect({ host: '127.0.0.1', port: b.port, localAddress: '127.0.0.2' });
      mute.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        mute.delete(socket);
        closed++;
        setImmediate(flood);
      });
      socket.resume();
    };
    for (let count = 0; count < 2 * MAX_WAITING; count++) flood();
    await eventually('the room is full, and they come again', () => closed > MAX_WAITING);
    using honest = await new RawPeer(b.port).greet('a');
    await b.untilUp('a');
    assert.equal(honest.isClosed, false);
    isOver = true;
    for (const socket of mute) socket.destroy();
  });

  test('a listener that answers as somebody else, or with junk, is not believed by the one who calls', async () => {
    for (const [words, reason] of [
      [helloLine('x', { nonce: makeNonce() }), /was refused: b calls itself x/],
      [helloLine('b'), /was refused: a hello without a nonce/],
      ['SSH-2.0-OpenSSH_9.2\r\n', /was refused: control message: a line that is not JSON/],
      [lines({ kind: 'refused', reason: 'go away' }), /refused this daemon: go away/],
      [lines({ kind: 'bye', reason: 'draining' }), /bye: draining/],
    ] as const) {
      await using parrot = await Parrot.start(words);
      await using a = await Party.start({ name: 'a', peers: [peer('b', parrot.port)] });
      await eventually(`a says ${reason}`, () => reason.test(a.reasonOf('b')));
      assert.deepEqual([a.stateOf('b'), a.news], ['down', []]);
    }
  });

  test('who takes too long to say hello is hung up on, however busy it looks, and whoever called', async () => {
    await using mute = await Parrot.start('');
    await using m = await Party.start({ name: 'm', peers: [peer('a', 1), peer('z', mute.port)] });
    using slow = new RawPeer(m.port);
    const dripping = setInterval(() => slow.say(' '), 50);
    assert.match(await slow.untilRefused(), /no hello within 3000 ms/);
    clearInterval(dripping);
    await m.untilError(/a connection from 127.0.0.1 was refused: no hello within 3000 ms/);
    await eventually('m gave up on z', () => m.reasonOf('z') === 'no hello within 3000 ms');
  });
});
