// Tests that connections between programs of two hosts, mirrored by the lanes of two daemons, are
// as those over plain TCP: programs nobody here wrote, and behaviour by behaviour.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { MirroredWorld } from '../../../workbench/worlds/mirrored-world.ts';
import { World } from '../../../workbench/worlds/world.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { crowds, together } from '../steering/compare.ts';
import { comparable, families, Pair } from '../steering/pair.ts';
import { programs } from '../steering/program-list.ts';

before(sweepDeadTests);

describe('programs of two hosts with the library', { concurrency: false }, () => {
  let plain: World;
  before(async () => {
    plain = await World.create();
  });
  after(() => plain?.close());

  for (const wire of ['shm', 'tcp'] as const) {
    describe(`over ${wire}`, () => {
      let world: MirroredWorld;
      before(async () => {
        world = await MirroredWorld.start({ wire });
      });
      after(() => world?.close());

      for (const { name, run } of programs.filter((each) => !each.name.includes('static'))) {
        test(name, async (t) => {
          const expected = await run(plain);
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

describe('socket behaviours between two hosts with the library', () => {
  const program = new BehavioursProgram();
  const waiting = new Set(Object.values(together).flat());
  let pair: Pair<MirroredWorld>;
  before(async () => {
    const env = { MILLRACE_DIRECT_AFTER: '1' };
    pair = await Pair.create(program, () => MirroredWorld.start({ env }));
  });
  after(() => pair[Symbol.asyncDispose]());

  const each = (names: readonly string[]): void => {
    for (const name of names) {
      for (const family of families) {
        test(`${name} over ${family}`, async () => {
          const expected = await pair.observe(name, pair.plain, family);
          const observed = await pair.observe(name, pair.carrying, family);
          assert.deepEqual(comparable(observed), comparable(expected));
        });
      }
    }
  };
  const names = program.list.map(({ name }) => name).filter((name) => !crowds.has(name));
  describe('one after the other', { concurrency: false }, () => each(names.filter((name) => !waiting.has(name))));
  describe('those that wait more than they work', { concurrency: true }, () => each([...waiting]));

  test('some of these connections were direct', async (t) => {
    const promoted = await pair.carrying.world.promoted();
    t.diagnostic(`${promoted} connections were promoted`);
    assert.ok(promoted > 0);
  });
});
