// Two sides joined in one process: every byte arrives, and ends and resets in their order, on each
// wire.
// Runs in a process of its own: it counts the descriptors of its process.

import assert from 'node:assert/strict';
import { constants } from 'node:os';
import { describe, test } from 'node:test';
import { wires } from '../providers/soft/fixtures/soft-pair.ts';
import { Dice } from './fixtures/dice.ts';
import { Joined } from './fixtures/joined.ts';
import type { Program } from './fixtures/program.ts';
import { testOptions } from './fixtures/side.ts';

const BYTES = 500_000;

function talk(programs: readonly Program[], bytes: number): void {
  for (const program of programs) {
    program.toSend = bytes;
    program.ending = 'shut';
  }
}

for (const wire of wires) {
  const devices = [`soft-${wire}`];
  describe(`a channel over ${wire}`, () => {
    test('a client whose server is refused is reset', async () => {
      await using joined = await Joined.up({ devices });
      joined.acceptor.refusal = constants.errno.ECONNREFUSED;
      const client = await joined.connectClient();
      client.toSend = 3000;
      await joined.until('the program is reset', () => client.error !== '');
      assert.equal(client.error, 'ECONNRESET');
      await joined.assertNothingIsLeft();
    });

    test('a client whose server does not listen any more is reset', async () => {
      await using joined = await Joined.up({ devices });
      const client = await joined.connectClient(joined.acceptor);
      joined.dialer.listener.close();
      await joined.until('the program is reset', () => client.error !== '');
      await joined.assertNothingIsLeft();
    });

    test('bytes arrive exactly, both ways, then both ends', async () => {
      await using joined = await Joined.up({ devices });
      const [client, server] = await joined.connect();
      talk([client, server], BYTES);
      await joined.until('all is said', () => client.isDone && server.isDone);
      assert.deepEqual([client.received, server.received, client.error, server.error], [BYTES, BYTES, '', '']);
      await joined.assertNothingIsLeft();
    });

    test('one half that has ended leaves the other one open', async () => {
      await using joined = await Joined.up({ devices });
      const [client, server] = await joined.connect(joined.acceptor);
      talk([client], 1000);
      await joined.until('the server hears the end', () => server.isEnded);
      assert.equal(server.received, 1000);
      talk([server], BYTES);
      await joined.until('the client hears the end', () => client.isEnded);
      assert.deepEqual([client.received, client.error], [BYTES, '']);
      await joined.assertNothingIsLeft();
    });

    test('what was sent before a reset arrives before it', async () => {
      await using joined = await Joined.up({ devices });
      const [client, server] = await joined.connect();
      client.toSend = 6000;
      await joined.until('all is sent and taken', () => client.sent === 6000 && server.received === 6000);
      server.toSend = 10;
      await joined.until('both have said something', () => client.received === 10);
      client.reset();
      await joined.until('the server is reset', () => server.error !== '');
      assert.deepEqual([server.received, server.error], [6000, 'ECONNRESET']);
      await joined.assertNothingIsLeft();
    });

    test('bytes of a server that resets before its daemon knows that it accepted arrive, too', async () => {
      await using joined = await Joined.up({ devices });
      const [client, server] = await joined.connect();
      server.toSend = 6000;
      // Nothing of the daemon runs here.
      while (server.sent < 6000 || server.socket.unacknowledgedBytes > 0) server.step();
      server.reset();
      await joined.until('the client is reset', () => client.error !== '');
      assert.deepEqual([client.received, client.error], [6000, 'ECONNRESET']);
      await joined.assertNothingIsLeft();
    });

    for (const before of ['nothing', 'an end'] as const) {
      test(`a server that is reset after ${before}, as its daemon finds when it writes, resets the client`, async () => {
        await using joined = await Joined.up({ devices });
        const [client, server] = await joined.connect();
        const { acceptor } = joined;
        client.toSend = 1000;
        await joined.until('they talk', () => server.received === 1000);
        acceptor.isPaused = true;
        client.toSend = 50_000_000;
        for (let turn = 0; turn < 50; turn++) {
          client.step();
          await joined.turn();
        }
        if (before === 'an end') server.socket.shutdownSend();
        server.reset();
        // The daemon reads its rings before it handles events of sockets.
        for (const session of acceptor.sessions) session.turn();
        acceptor.isPaused = false;
        await joined.until('the client is reset', () => client.error !== '');
        await joined.assertNothingIsLeft();
      });
    }

    test('two hundred streams at once, in sizes and at paces of their own, are all exact', async () => {
      const dice = new Dice(7);
      await using joined = await Joined.up({ devices });
      const pairs: [Program, Program][] = [];
      for (let index = 0; index < 200; index++) {
        pairs.push(await joined.connect(joined.sides[index % 2]));
      }
      const sizes = new Map<Program, number>();
      for (const program of pairs.flat()) {
        const bytes = dice.below(4) === 0 ? dice.below(60_000) : dice.below(4000);
        sizes.set(program, bytes);
        talk([program], bytes);
        program.sendBytes = 1 + dice.below(8192);
      }
      const all = pairs.flat();
      await joined.until('all is said', () => {
        for (let count = 0; count < 20; count++) all[dice.below(all.length)].receiveBytes = dice.below(4096);
        for (let count = 0; count < 20; count++) all[dice.below(all.length)].receiveBytes = 32_768;
        return all.every(({ isDone }) => isDone);
      });
      for (const [one, other] of pairs) {
        assert.deepEqual([one.received, other.received], [sizes.get(other), sizes.get(one)]);
        assert.deepEqual([one.error, other.error], ['', '']);
      }
      await joined.assertNothingIsLeft();
    });

    test('programs that reset at any moment leave nothing behind', async () => {
      const dice = new Dice(11);
      await using joined = await Joined.up({ devices });
      for (let round = 0; round < 5; round++) {
        const pairs: [Program, Program][] = [];
        for (let index = 0; index < 12; index++) pairs.push(await joined.connect(joined.sides[index % 2]));
        const all = pairs.flat();
        talk(all, 100_000);
        for (const program of all) {
          if (dice.below(3) === 0) program.toSend = dice.below(20_000);
          if (dice.below(3) === 0) program.receiveBytes = dice.below(2000);
        }
        await joined.until('each pair has come to an end', () => {
          const victim = all[dice.below(all.length)];
          if (dice.below(8) === 0) victim.reset();
          if (dice.below(8) === 0) victim.receiveBytes = 0;
          return pairs.every(
            ([one, other]) => one.socket.isClosed || other.socket.isClosed || (one.isDone && other.isDone),
          );
        });
        for (const program of all) program.reset();
        await joined.assertNothingIsLeft();
      }
      assert.deepEqual(
        joined.sides.map(({ protocolErrors }) => protocolErrors),
        [[], []],
      );
    });

    test('a receiver that stands still holds its window, and nobody else', async () => {
      await using joined = await Joined.up({ devices });
      const [stubborn, still] = await joined.connect();
      still.receiveBytes = 0;
      stubborn.toSend = 50_000_000;
      await joined.until('its window is full', () => stubborn.sent > 0 && isStuck(joined, stubborn));
      for (let round = 0; round < 3; round++) {
        const pair = await joined.connect(joined.sides[round % 2]);
        talk(pair, BYTES);
        await joined.until('another is done', () => pair.every(({ isDone }) => isDone));
        assert.deepEqual(
          pair.map(({ received }) => received),
          [BYTES, BYTES],
        );
      }
      const [held] = Array.from(joined.acceptor.sessions[0]?.link?.streams ?? [], ({ heldBytes }) => heldBytes);
      assert.ok((held ?? 0) > 0 && (held ?? 0) <= testOptions.windowBytes, `${held} bytes are held`);
      assert.ok(
        joined.acceptor.context.pool.borrowedCount <= 2,
        `${joined.acceptor.context.pool.borrowedCount} buffers`,
      );
      still.receiveBytes = 32_768;
      const before = still.received;
      await joined.until('it goes on', () => still.received > before + 1_000_000);
      still.reset();
      await joined.until('the sender is reset', () => stubborn.error !== '');
      await joined.assertNothingIsLeft();
    });

    test('many that stand still at once share the budget of memory, and all come to an end', async () => {
      const memoryBytes = 65_536;
      await using joined = await Joined.up({ devices, memoryBytes });
      const pairs: [Program, Program][] = [];
      for (let index = 0; index < 12; index++) pairs.push(await joined.connect());
      for (const [client, server] of pairs) {
        talk([client], 120_000);
        server.ending = 'shut';
        server.receiveBytes = 0;
      }
      await joined.until('nothing moves', () => pairs.every(([client]) => isStuck(joined, client)));
      const { promisedBytes } = joined.acceptor.context.budget;
      assert.ok(promisedBytes <= memoryBytes + pairs.length * 4096, `${promisedBytes} bytes are promised`);
      for (const [, server] of pairs) server.receiveBytes = 32_768;
      await joined.until('all is said', () => pairs.every(([, server]) => server.isDone));
      for (const [, server] of pairs) assert.equal(server.received, 120_000);
      await joined.assertNothingIsLeft();
    });

    test('streams that are idle give their credit back where memory is short, and go on afterwards', async () => {
      await using joined = await Joined.up({ devices, memoryBytes: 16_384 });
      const pairs: [Program, Program][] = [];
      for (let index = 0; index < 8; index++) pairs.push(await joined.connect());
      const budgets = joined.sides.map(({ context }) => context.budget);
      for (let round = 1; round <= 3; round++) {
        for (const program of pairs.flat()) program.toSend = round * 20_000;
        await joined.until('all have heard', () => pairs.flat().every(({ received }) => received === round * 20_000));
        assert.ok(budgets.every(({ isShort }) => isShort));
        await joined.until('all is given back', () => {
          for (const side of joined.sides) side.beat();
          return budgets.every(({ isShort }) => !isShort);
        });
      }
    });

    test('what a program sends before its reset arrives, also where its credit was given back', async () => {
      await using joined = await Joined.up({ devices, memoryBytes: 16_384 });
      const pairs: [Program, Program][] = [];
      for (let index = 0; index < 8; index++) pairs.push(await joined.connect());
      const budgets = joined.sides.map(({ context }) => context.budget);
      await joined.until('all is given back', () => {
        for (const side of joined.sides) side.beat();
        return budgets.every(({ isShort }) => !isShort);
      });
      // The lane of the clients sleeps, and grants nothing.
      joined.dialer.isPaused = true;
      for (const [, server] of pairs) server.toSend = 7000;
      await joined.until('all is sent', () => pairs.every(([, server]) => server.sent === 7000));
      for (const [, server] of pairs) server.reset();
      for (let count = 0; count < 20; count++) await joined.turn();
      joined.dialer.isPaused = false;
      await joined.until('all are reset', () => pairs.every(([client]) => client.error !== ''));
      for (const [client] of pairs) assert.deepEqual([client.received, client.error], [7000, 'ECONNRESET']);
    });

    test('a ring that is full, because the peer sleeps through it, goes on when the peer does', async () => {
      await using joined = await Joined.up({
        devices,
        dialer: { firstWindowBytes: 1 << 20, windowBytes: 1 << 20 },
        acceptor: { firstWindowBytes: 1 << 20, windowBytes: 1 << 20 },
        memoryBytes: 1 << 24,
      });
      const pairs = [await joined.connect(), await joined.connect()];
      for (const [client, server] of pairs) {
        talk([client], BYTES);
        server.ending = 'shut';
      }
      const { outgoing } = joined.dialer.sessions[0]?.link ?? assert.fail();
      joined.acceptor.isPaused = true;
      await joined.until('the ring is full', () => outgoing.usedSlots > outgoing.geometry.slots - 64);
      for (let count = 0; count < 200; count++) await joined.turn();
      joined.acceptor.isPaused = false;
      await joined.until('all is said', () => pairs.flat().every(({ isDone }) => isDone));
      for (const [, server] of pairs) assert.equal(server.received, BYTES);
      await joined.assertNothingIsLeft();
    });
  });
}

/** The kernel's buffers are full, too: nothing was sent for a while. */
const lastSent = new WeakMap<Program, { sent: number; turns: number }>();
function isStuck(joined: Joined, program: Program): boolean {
  const last = lastSent.get(program);
  const turns = last?.sent === program.sent ? last.turns + 1 : 0;
  lastSent.set(program, { sent: program.sent, turns });
  return turns > 100 && joined.sides.every(({ isAwaiting }) => !isAwaiting);
}
