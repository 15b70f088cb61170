// Tests that a connection behaves the same when it is direct, behaviour by behaviour: both ends
// have the library, and offer each connection after its first message.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { DirectWorld } from '../../../workbench/worlds/direct-world.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { crowds, together } from '../steering/compare.ts';
import { comparable, families, Pair } from '../steering/pair.ts';

before(sweepDeadTests);

describe('socket behaviours with the library at both ends', () => {
  const program = new BehavioursProgram();
  const waiting = new Set(Object.values(together).flat());
  let pair: Pair<DirectWorld>;
  before(async () => {
    const env = { MILLRACE_DIRECT_AFTER: '1' };
    pair = await Pair.create(program, () => DirectWorld.start({ env }));
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

  test('some of these connections were direct', (t) => {
    const promoted = pair.carrying.world.promoted();
    t.diagnostic(`${promoted} connections were promoted`);
    assert.ok(promoted > 0);
  });
});
