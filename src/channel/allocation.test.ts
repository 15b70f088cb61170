// The steady state of a lane: turns that carry data allocate nothing worth mentioning.
// Runs alone: it measures memory while the compiler works.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { SharedMemory } from '../native/index.ts';
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
function turn({ loop, sessions }: Side): void {
  loop.turn(0);
  for (let index = 0; index < sessions.length; index++) sessions[index].turn();
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
      run();
      // The best of a few: the compiler works at the same time.
      let least = Number.POSITIVE_INFINITY;
      for (let attempt = 0; attempt < 20 && least > limit; attempt++) {
        gc();
        const before = process.memoryUsage().heapUsed;
        run();
        least = Math.min(least, (process.memoryUsage().heapUsed - before) / ROUNDS);
      }
      assert.ok(least <= limit, `${least} bytes a round trip`);
    });
  }
});
