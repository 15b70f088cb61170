// Tests that connections between programs of two hosts, mirrored by the lanes of two daemons, are
// as those over plain TCP: programs nobody here wrote, and behaviour by behaviour.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { PlainRuns } from '../steering/plain-runs.ts';
import { programs } from '../steering/program-list.ts';
import { compareBehaviours } from './behaviours.ts';

before(sweepDeadTests);

describe('programs of two hosts with the library', { concurrency: false }, () => {
  const plain = new PlainRuns();
  after(() => plain[Symbol.asyncDispose]());

  for (const wire of ['shm', 'tcp'] as const) {
    describe(`over ${wire}`, () => {
      let world: MirroredWorld;
      before(async () => {
        world = await MirroredWorld.start({ wire });
      });
      after(() => world?.close());

      for (const { name, run } of programs.filter((each) => !each.name.includes('static'))) {
        test(name, async (t) => {
          const expected = await plain.resultOf(run);
          const earlier = await world.promoted();
          assert.deepEqual(await run(world), expected);
          const promoted = (await world.promoted()) - earlier;
          t.diagnostic(`${promoted} connections promoted`);
          assert.ok(promoted > 0, 'no connection was promoted');
        });
      }
    });
  }
});

compareBehaviours('socket behaviours between two hosts with the library', (env) => MirroredWorld.start({ env }));
