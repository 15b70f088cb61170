// Tests that programs nobody here wrote run unchanged with the library of Direct, at both ends or
// at one, with the results of plain TCP.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DirectWorld } from '../../../workbench/worlds/direct-world.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { PlainRuns } from '../steering/plain-runs.ts';
import { type Program, programs } from '../steering/program-list.ts';

before(sweepDeadTests);

/** Programs whose connections live long enough to be promoted. */
const isPromoted = ({ name }: Program): boolean => !name.includes('static');

describe('programs with the library', { concurrency: false }, () => {
  const plain = new PlainRuns();
  after(() => plain[Symbol.asyncDispose]());

  for (const hosts of [['a', 'b'], ['a'], ['b']] as const) {
    describe(`at ${hosts.length === 2 ? 'both ends' : hosts[0] === 'a' ? 'the client' : 'the server'}`, () => {
      let world: DirectWorld;
      before(async () => {
        world = await DirectWorld.start({ hosts });
      });
      after(() => world?.close());

      for (const program of programs) {
        test(program.name, async (t) => {
          const expected = await plain.resultOf(program.run);
          const earlier = world.promoted();
          assert.deepEqual(await program.run(world), expected);
          const promoted = world.promoted() - earlier;
          t.diagnostic(`${promoted} connections promoted`);
          if (hosts.length === 2 && isPromoted(program)) assert.ok(promoted > 0, 'no connection was promoted');
          else assert.equal(promoted, 0);
        });
      }
    });
  }
});
