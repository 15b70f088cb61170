// Transports that break under load: nothing is lost, repeated or reordered; and a peer that does
// not come back is not waited for.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { wires } from '../providers/soft/fixtures/soft-pair.ts';
import { Dice } from './fixtures/dice.ts';
import { Joined } from './fixtures/joined.ts';
import type { Program } from './fixtures/program.ts';

const BYTES = 300_000;
const impatient = { recoveryNs: 1e8, deadNs: 2e8 };

async function talkers(joined: Joined, count: number): Promise<Program[]> {
  const all: Program[] = [];
  for (let index = 0; index < count; index++) {
    const pair = await joined.connect(joined.sides[index % 2]);
    for (const program of pair) {
      program.toSend = BYTES;
      program.ending = 'shut';
    }
    all.push(...pair);
  }
  return all;
}

async function assertAllWhole(joined: Joined, programs: readonly Program[]): Promise<void> {
  await joined.until('all is said', () => programs.every(({ isDone }) => isDone));
  for (const { received, error } of programs) assert.deepEqual([received, error], [BYTES, '']);
  assert.deepEqual(
    joined.sides.map(({ protocolErrors }) => protocolErrors),
    [[], []],
  );
  await joined.assertNothingIsLeft();
}

/** Lets them talk until there is a lot under way, or all has arrived: one step can move much. */
async function underWay(joined: Joined, programs: readonly Program[], bytes = 100_000): Promise<void> {
  const received = (): number => programs.reduce((sum, program) => sum + program.received, 0);
  const before = received();
  const isAllThere = (): boolean => programs.every((program) => program.received === BYTES);
  await joined.until('a lot is under way', () => received() >= before + bytes || isAllThere());
}

describe('a peer that is gone', () => {
  test('streams are reset once the time for recovery is over, and nothing is left of them', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'], dialer: impatient, acceptor: impatient });
    const programs = await talkers(joined, 4);
    await underWay(joined, programs);
    joined.isControlUp = false;
    for (const session of joined.sessions) session.peerDown();
    joined.breakOne(0);
    joined.hasClock = true;
    await joined.until('all are reset', () => programs.every(({ error }) => error !== ''));
    await joined.assertNothingIsLeft();
    assert.deepEqual(
      joined.sessions.map(({ state }) => state),
      ['down', 'down'],
    );
  });

  test('is detected by pings that stay unanswered', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'], dialer: impatient, acceptor: impatient });
    const [client] = await joined.connect();
    joined.hasClock = true;
    joined.acceptor.isPaused = true;
    await joined.until('the program is reset', () => client.error !== '');
    joined.acceptor.isPaused = false;
    await joined.untilUp();
    await joined.assertNothingIsLeft();
  });

  test('a side that was up when the offer came, and gets no message after it, gives up, too', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'], acceptor: { recoveryNs: 1e8 } });
    const [, server] = await joined.connect();
    joined.breakOne(0);
    await joined.until('it has heard the offer', () => joined.acceptor.sessions[0]?.state === 'recovering');
    joined.dialer.isPaused = true;
    joined.hasClock = true;
    await joined.until('the server is reset', () => server.error !== '');
    joined.dialer.isPaused = false;
    await joined.untilUp();
    await joined.assertNothingIsLeft();
  });

  test('after a new incarnation its streams are reset, and new ones work', async () => {
    await using joined = await Joined.up();
    const programs = await talkers(joined, 4);
    await underWay(joined, programs);
    joined.acceptor.sessions[0]?.peerUp(false);
    joined.dialer.sessions[0]?.peerUp(false);
    await joined.until('all are reset', () => programs.every(({ error }) => error !== ''));
    assert.deepEqual(
      joined.sessions.map(({ state }) => state),
      ['idle', 'idle'],
    );
    await joined.assertNothingIsLeft();
    await assertAllWhole(joined, await talkers(joined, 2));
  });

  test('a peer that does not know the session any more gets a new one', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    const programs = await talkers(joined, 2);
    await underWay(joined, programs);
    joined.isControlLossy = true;
    joined.acceptor.sessions[0]?.close('for the test');
    joined.isControlLossy = false;
    joined.hasClock = true;
    await joined.until('all are reset', () => programs.every(({ error }) => error !== ''));
    await joined.untilUp();
    await assertAllWhole(joined, await talkers(joined, 2));
  });
});

describe('what is left when a session ends', () => {
  test('bytes of a stream that both have ended still reach the program', async () => {
    const roomy = { firstWindowBytes: 1 << 20, windowBytes: 1 << 20 };
    await using joined = await Joined.up({ dialer: roomy, acceptor: roomy, memoryBytes: 1 << 24 });
    const [client, server] = await joined.connect();
    client.toSend = 900_000;
    for (const program of [client, server]) program.ending = 'shut';
    server.receiveBytes = 0;
    const [stream] = joined.acceptor.sessions[0]?.link?.streams ?? [];
    await joined.until('both have ended', () => joined.sessions.every(({ link }) => link?.streamCount === 0));
    assert.ok(stream !== undefined && stream.heldBytes > 0, 'some of it is held');
    joined.acceptor.sessions[0]?.close('for the test');
    server.receiveBytes = 32_768;
    await joined.until('the server has everything', () => server.isDone);
    assert.deepEqual([server.received, server.isEnded, server.error], [900_000, true, '']);
    await joined.until('the socket is closed', () => stream.isClosed);
    assert.equal(joined.acceptor.context.pool.borrowedCount, 0);
  });

  test('a stream that is closed in the middle is reset on both sides', async () => {
    await using joined = await Joined.up();
    const pair = await joined.connect();
    for (const program of pair) program.toSend = BYTES;
    await underWay(joined, pair, 20_000);
    joined.dialer.sessions[0]?.close('for the test');
    await joined.until('both are reset', () => pair.every(({ error }) => error !== ''));
    await joined.assertNothingIsLeft();
  });
});

describe('a device that is gone', () => {
  test('the next one of the list takes over, and no byte is lost', async () => {
    await using joined = await Joined.up({ devices: ['soft-shm', 'soft-tcp'] });
    const programs = await talkers(joined, 4);
    assert.equal(joined.dialer.sessions[0]?.wire, 'shm');
    await underWay(joined, programs);
    joined.hasClock = true;
    joined.acceptor.pull('soft-shm');
    await joined.until('the other wire is up', () => joined.dialer.sessions[0]?.link?.transport?.wire === 'tcp');
    await underWay(joined, programs);
    // And back again.
    joined.acceptor.missing.clear();
    joined.dialer.pull('soft-tcp');
    await joined.until('the first wire is up', () => joined.acceptor.sessions[0]?.link?.transport?.wire === 'shm');
    await assertAllWhole(joined, programs);
    assert.ok((joined.dialer.sessions[0]?.recoveries ?? 0) >= 2);
  });

  test('a wire that only one side has is not used', async () => {
    await using joined = await Joined.up({
      devices: ['soft-shm', 'soft-tcp'],
      acceptor: { devices: ['soft-tcp'] },
      hasClock: true,
    });
    assert.equal(joined.dialer.sessions[0]?.wire, 'tcp');
    await assertAllWhole(joined, await talkers(joined, 2));
  });
});

describe('a control connection that is gone', () => {
  for (const way of ['down', 'lossy'] as const) {
    test(`while it is ${way} nothing stops; what broke meanwhile recovers after it`, async () => {
      await using joined = await Joined.up({ devices: ['soft-tcp'] });
      const programs = await talkers(joined, 4);
      joined.hasClock = true;
      if (way === 'down') joined.isControlUp = false;
      else joined.isControlLossy = true;
      await underWay(joined, programs);
      joined.breakOne(0);
      await joined.until('it is missed', () => joined.dialer.sessions[0]?.state === 'recovering');
      joined.isControlUp = true;
      joined.isControlLossy = false;
      for (const session of joined.sessions) session.peerUp(true);
      await assertAllWhole(joined, programs);
    });
  }
});

describe('a client that connects while a session recovers', () => {
  test('is carried as soon as the session is up again', async () => {
    await using joined = await Joined.up({ devices: ['soft-tcp'] });
    joined.isControlUp = false;
    joined.breakOne(0);
    joined.hasClock = true;
    await joined.until('it is missed', () => joined.dialer.sessions[0]?.state === 'recovering');
    const client = await joined.connectClient();
    client.toSend = BYTES;
    client.ending = 'shut';
    for (let turns = 0; turns < 50; turns++) await joined.turn();
    assert.equal(client.error, '');
    joined.isControlUp = true;
    for (const session of joined.sessions) session.peerUp(true);
    const server = await joined.acceptServer(client);
    server.toSend = BYTES;
    server.ending = 'shut';
    await assertAllWhole(joined, [client, server]);
  });
});

for (const wire of wires) {
  describe(`recovery over ${wire}`, () => {
    for (const seed of [1, 2, 3]) {
      test(`queue pairs that die at any moment cost no byte, seed ${seed}`, async () => {
        const dice = new Dice(seed);
        await using joined = await Joined.up({ devices: [`soft-${wire}`] });
        joined.hasClock = true;
        const programs = await talkers(joined, 6);
        for (let breaks = 0; breaks < 12; breaks++) {
          for (const program of programs) program.receiveBytes = 1 + dice.below(32_768);
          await underWay(joined, programs, 1 + dice.below((12 * BYTES) / 13));
          for (let turns = dice.below(20); turns > 0; turns--) await joined.turn();
          joined.breakOne(dice.below(2));
        }
        await assertAllWhole(joined, programs);
      });
    }
  });
}
