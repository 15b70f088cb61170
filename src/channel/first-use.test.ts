// Links that are made at first use, by whichever side needs them, and given back when neither does.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { wires } from '../providers/soft/fixtures/soft-pair.ts';
import { Dice } from './fixtures/dice.ts';
import { Joined, openFds } from './fixtures/joined.ts';
import type { Program } from './fixtures/program.ts';

const BYTES = 20_000;
const impatient = { recoveryNs: 1e8, deadNs: 2e8 };
/** Given back at the first heartbeat at which nothing uses it. */
const restless = { idleNs: 0 };

const statesOf = (joined: Joined): readonly string[] => joined.sessions.map(({ state }) => state);
const saidBy = (joined: Joined): readonly string[] => joined.said.map(({ body }) => (body as { kind: string }).kind);

function talk(...programs: readonly Program[]): void {
  for (const program of programs) {
    program.toSend = BYTES;
    program.ending = 'shut';
  }
}

async function untilWhole(joined: Joined, programs: readonly Program[]): Promise<void> {
  await joined.until('all is said', () => programs.every(({ isDone }) => isDone));
  for (const { received, error } of programs) assert.deepEqual([received, error], [BYTES, '']);
  assert.deepEqual(
    joined.sides.map(({ protocolErrors }) => protocolErrors),
    [[], []],
  );
}

describe('a link that nobody uses', () => {
  test('is not made: no memory, no descriptor, no message', async () => {
    await using joined = Joined.idle({ hasClock: true });
    const before = openFds();
    for (let turns = 0; turns < 50; turns++) await joined.turn();
    assert.deepEqual([statesOf(joined), joined.said, openFds()], [['idle', 'idle'], [], before]);
    assert.ok(joined.sessions.every(({ link }) => link === undefined));
  });

  test('is not waited for while the control connection is down', async () => {
    await using joined = Joined.idle();
    for (const session of joined.sessions) session.peerDown();
    await assert.rejects(joined.connectClient(), /does not take the connection/);
  });
});

for (const [side, index] of [
  ['dials', 0],
  ['accepts', 1],
] as const) {
  describe(`the first clients, at the side that ${side},`, () => {
    test('wait for the link, and are carried in order', async () => {
      await using joined = Joined.idle({ devices: ['soft-tcp'] });
      const [from, to] = [joined.sides[index], joined.sides[1 - index]];
      const clients = [await joined.connectClient(from), await joined.connectClient(from)];
      assert.equal(joined.sessions[index]?.streamCount, 2);
      const servers: Program[] = [];
      for (const client of clients) servers.push(await joined.acceptServer(client, to));
      talk(...clients, ...servers);
      await untilWhole(joined, [...clients, ...servers]);
      assert.deepEqual(statesOf(joined), ['up', 'up']);
      assert.equal(saidBy(joined).includes('want'), side === 'accepts');
    });

    test('are reset when no device leads to a link; it is tried again, and later ones are carried', async () => {
      await using joined = Joined.idle({ devices: ['soft-tcp', 'soft-roce'], hasClock: true });
      for (const name of ['soft-tcp', 'soft-roce']) joined.dialer.missing.add(name);
      const client = await joined.connectClient(joined.sides[index]);
      await joined.until('it is reset', () => client.error !== '');
      assert.match(joined.sides[index]?.refusals[0] ?? '', /soft-roce: open soft-roce: gone/);
      await joined.until('both know', () => joined.sessions.every(({ state }) => state === 'down'));
      await assert.rejects(joined.connectClient(joined.sides[index]), /does not take the connection/);
      joined.dialer.missing.clear();
      await joined.untilUp();
      const pair = await joined.connect(joined.sides[index]);
      talk(...pair);
      await untilWhole(joined, pair);
    });

    test('are reset in time when the peer does not answer', async () => {
      await using joined = Joined.idle({
        devices: ['soft-tcp'],
        dialer: impatient,
        acceptor: impatient,
        hasClock: true,
      });
      joined.isControlLossy = true;
      const client = await joined.connectClient(joined.sides[index]);
      await joined.until('it is reset', () => client.error !== '');
      assert.match(joined.sides[index]?.refusals[0] ?? '', /not made in time|did not answer/);
      joined.isControlLossy = false;
      await joined.untilUp();
    });

    test('are carried though the control connection was lost meanwhile', async () => {
      await using joined = Joined.idle({ devices: ['soft-tcp'] });
      joined.isControlLossy = true;
      const client = await joined.connectClient(joined.sides[index]);
      joined.isControlLossy = false;
      for (const session of joined.sessions) session.peerDown();
      for (const session of joined.sessions) session.peerUp(true);
      const server = await joined.acceptServer(client, joined.sides[1 - index]);
      talk(client, server);
      await untilWhole(joined, [client, server]);
    });
  });
}

test('an acceptor whose link broke asks for it, where the dialer has forgotten the session', async () => {
  await using joined = await Joined.up({ devices: ['soft-tcp'], hasClock: true });
  joined.isControlLossy = true;
  joined.dialer.sessions[0]?.close('its peer left');
  await joined.until('the acceptor has noticed', () => joined.acceptor.sessions[0]?.state === 'recovering');
  joined.isControlLossy = false;
  await joined.untilUp();
  assert.ok(saidBy(joined).includes('want'));
});

test('a device that the peer does not have is passed over at once, without waiting for the clock', async () => {
  await using joined = Joined.idle({ devices: ['soft-shm', 'soft-tcp'], acceptor: { devices: ['soft-tcp'] } });
  const pair = await joined.connect();
  talk(...pair);
  await untilWhole(joined, pair);
  assert.equal(joined.dialer.sessions[0]?.wire, 'tcp');
  assert.ok(!joined.dialer.states.includes('down'));
});

for (const wire of wires) {
  describe(`a link over ${wire} that nothing uses any more`, () => {
    const options = { devices: [`soft-${wire}`], dialer: restless, acceptor: restless };

    test('is given back by both, with all it had, and made again; its counters go on', async () => {
      await using joined = Joined.idle({ ...options, hasClock: true });
      // Devices stay open.
      const warm = await joined.connect();
      for (const program of warm) program.ending = 'shut';
      await joined.until('it is given back', () => joined.sessions.every(({ state }) => state === 'idle'));
      const before = openFds();
      for (const from of joined.sides) {
        const pair = await joined.connect(from);
        talk(...pair);
        await untilWhole(joined, pair);
        await joined.until('it is given back', () => joined.sessions.every(({ state }) => state === 'idle'));
      }
      // The programs of the test have two sockets each.
      await joined.until('descriptors are given back', () => openFds() <= before + 4);
      assert.ok(joined.sessions.every(({ link }) => link === undefined));
      assert.ok(joined.sessions.every(({ counters }) => counters.bytesIn >= 2 * BYTES));
      assert.ok(joined.sides.every(({ states }) => !states.includes('down') && !states.includes('recovering')));
    });

    test('is kept while a connection is open, though it is silent', async () => {
      await using joined = Joined.idle({ ...options, hasClock: true });
      const [client, server] = await joined.connect(joined.acceptor);
      const pings = (): number => joined.sessions[0]?.counters.recordsOut ?? 0;
      const before = pings();
      await joined.until('some heartbeats have passed', () => pings() > before + 20);
      assert.deepEqual(statesOf(joined), ['up', 'up']);
      talk(client, server);
      await untilWhole(joined, [client, server]);
    });

    for (const seed of [1, 2]) {
      test(`costs no connection that comes at that moment, seed ${seed}`, async () => {
        const dice = new Dice(seed);
        await using joined = Joined.idle({ ...options, hasClock: true });
        const rests = (): number => saidBy(joined).filter((kind) => kind === 'rest').length;
        for (let round = 0; round < 8; round++) {
          const programs: Program[] = [];
          for (let count = dice.below(4); count >= 0; count--) {
            const pair = await joined.connect(joined.sides[dice.below(2)]);
            talk(...pair);
            programs.push(...pair);
            for (let turns = dice.below(30); turns > 0; turns--) await joined.turn();
          }
          const before = rests();
          await untilWhole(joined, programs);
          // Some are opened just when the dialer has asked to give the link back.
          if (dice.below(2) === 0) await joined.until('it is asked', () => rests() > before);
        }
        assert.ok(saidBy(joined).includes('rested'));
        assert.deepEqual(
          joined.sides.map(({ refusals }) => refusals),
          [[], []],
        );
        await joined.assertNothingIsLeft();
      });
    }

    test('is made anew after the answer was lost, and nobody is stuck', async () => {
      await using joined = Joined.idle({ ...options, hasClock: true });
      const pair = await joined.connect();
      talk(...pair);
      await untilWhole(joined, pair);
      joined.isControlLossy = true;
      await joined.until('it is asked', () => saidBy(joined).includes('rest'));
      const client = await joined.connectClient();
      joined.isControlLossy = false;
      for (const session of joined.sessions) session.peerDown();
      for (const session of joined.sessions) session.peerUp(true);
      const server = await joined.acceptServer(client);
      talk(client, server);
      await untilWhole(joined, [client, server]);
    });
  });
}
