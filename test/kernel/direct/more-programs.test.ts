// Tests that more programs nobody here wrote run unchanged with the library of Direct between two
// hosts, at both ends or at one, with the results of plain TCP.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { World } from '../../../workbench/worlds/world.ts';
import { type DirectProgram, directPrograms } from './program-list.ts';

before(sweepDeadTests);

/** By program: what it did over plain TCP. */
const expectations = new Map<string, unknown>();

async function expectationOf(plain: World, { name, run }: DirectProgram): Promise<unknown> {
  if (!expectations.has(name)) expectations.set(name, await run(plain));
  return expectations.get(name);
}

describe('more programs of two hosts with the library', { concurrency: false }, () => {
  let plain: World;
  before(async () => {
    plain = await World.create();
  });
  after(() => plain?.close());

  for (const hosts of [['a', 'b'], ['a'], ['b']] as const) {
    describe(`at ${hosts.length === 2 ? 'both ends' : hosts[0] === 'a' ? 'the client' : 'the server'}`, () => {
      let world: MirroredWorld;
      before(async () => {
        world = await MirroredWorld.start({ hosts });
      });
      after(() => world?.close());

      for (const program of directPrograms) {
        test(program.name, async (t) => {
          const expected = await expectationOf(plain, program);
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
