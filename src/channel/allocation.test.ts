// The steady state of a lane: turns that carry data allocate nothing worth mentioning.
// Runs alone: it measures memory while the compiler works.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SharedMemory } from '../native/index.ts';
import { DirectPairs } from './fixtures/direct-pair.ts';
import type { DirectProgram } from './fixtures/direct-program.ts';
import { Joined } from './fixtures/joined.ts';
import type { Program } from './fixtures/program.ts';
import type { Side } from './fixtures/side.ts';

setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc') as () => void;
const ROUNDS = 3000;

/**
 * Bytes of a round trip. In shared memory less than one object; across a wire, a list for each
 * event of the channel.
 */
const limits = [
  ['shm', 12],
  ['tcp', 1000],
] as const;

/** As a lane that is too busy to sleep. */
function turn({ loop, sessions, arenas }: Side): void {
  loop.turn(0);
  for (let index = 0; index < arenas.length; index++) arenas[index].collect();
  for (let index = 0; index < sessions.length; index++) sessions[index].turn();
  for (let index = 0; index < arenas.length; index++) arenas[index].ring();
}

/** Bytes that a round allocates: the best of a few runs, because the compiler works meanwhile. */
function leastBytes(run: () => void, limit: number): number {
  run();
  let least = Number.POSITIVE_INFINITY;
  for (let attempt = 0; attempt < 20 && least > limit; attempt++) {
    gc();
    const before = process.memoryUsage().heapUsed;
    run();
    least = Math.min(least, (process.memoryUsage().heapUsed - before) / ROUNDS);
  }
  return least;
}

describe('the path of the bytes', () => {
  for (const [wire, limit] of limits) {
    test(`a round trip over ${wire} allocates next to nothing`, async () => {
      await using joined = await Joined.up({ devices: [`soft-${wire}`] });
      const [client, server] = await joined.connect();
      const { dialer, acceptor } = joined;
      using scratch = SharedMemory.create({ sizeBytes: 4096 });
      const hop = (from: Program, to: Program): void => {
        from.socket.send(scratch, 0, 64);
        for (let tries = 0; to.socket.receive(scratch, 0, 4096) <= 0; tries++) {
          turn(dialer);
          turn(acceptor);
          if (tries > 100_000) throw new Error('it does not arrive');
        }
      };
      const run = (): void => {
        for (let round = 0; round < ROUNDS; round++) {
          hop(client, server);
          hop(server, client);
        }
      };
      const least = leastBytes(run, limit);
      assert.ok(least <= limit, `${least} bytes a round trip`);
    });

    test(`a round trip between rings of programs over ${wire} allocates next to nothing`, async () => {
      await using pairs = await DirectPairs.up({ devices: [`soft-${wire}`] });
      // Positions that are no small integers.
      const [{ program: left }, { program: right }] = await pairs.promoted(0, [2 ** 31 + 5, 2 ** 40]);
      const { dialer, acceptor } = pairs.joined;
      const hop = (from: DirectProgram, to: DirectProgram): void => {
        from.write(64);
        for (let tries = 0; to.read(4096) === 0; tries++) {
          turn(dialer);
          turn(acceptor);
          if (tries > 100_000) throw new Error('it does not arrive');
        }
      };
      const least = leastBytes(() => {
        for (let round = 0; round < ROUNDS; round++) {
          hop(left, right);
          hop(right, left);
        }
      }, limit);
      assert.ok(least <= limit, `${least} bytes a round trip`);
    });
  }
});
