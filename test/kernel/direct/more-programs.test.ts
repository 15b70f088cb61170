// Tests that more programs nobody here wrote run unchanged with the library of Direct between two
// hosts, at both ends or at one, with the results of plain TCP.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { PlainRuns } from '../steering/plain-runs.ts';
import { directPrograms } from './program-list.ts';

before(sweepDeadTests);

describe('more programs of two hosts with the library', { concurrency: false }, () => {
  const plain = new PlainRuns();
  after(() => plain[Symbol.asyncDispose]());

  for (const hosts of [['a', 'b'], ['a'], ['b']] as const) {
    describe(`at ${hosts.length === 2 ? 'both ends' : hosts[0] === 'a' ? 'the client' : 'the server'}`, () => {
      let world: MirroredWorld;
      before(async () => {
        world = await MirroredWorld.start({ hosts });
      });
      after(() => world?.close());

      for (const program of directPrograms) {
        test(program.name, async (t) => {
          const expected = await plain.resultOf(program.run);
          const earlier = await world.promoted();
          assert.deepEqual(await program.run(world), expected);
          const promoted = (await world.promoted()) - earlier;
          t.diagnostic(`${promoted} connections promoted`);
          if (hosts.length === 2) assert.ok(promoted > 0, 'no connection was promoted');
          else assert.equal(promoted, 0);
        });
      }
    });
  }
});
