// Compares the behaviours of direct connections with those of plain TCP, one by one: both ends have
// the library, and offer each connection after its first message.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { World } from '../../../workbench/worlds/world.ts';
import { BehavioursProgram } from '../steering/behaviours-program.ts';
import { crowds, together } from '../steering/compare.ts';
import { comparable, families, Pair } from '../steering/pair.ts';

interface PromotingWorld extends World {
  /** Connections that were promoted since it began. */
  promoted(): number | Promise<number>;
}

/** `start`: a world whose programs have the library, with these variables in addition. */
export function compareBehaviours<W extends PromotingWorld>(
  title: string,
  start: (env: NodeJS.ProcessEnv) => Promise<W>,
): void {
  describe(title, () => {
    const program = new BehavioursProgram();
    const waiting = new Set(Object.values(together).flat());
    let pair: Pair<W>;
    before(async () => {
      const env = { MILLRACE_DIRECT_AFTER: '1' };
      pair = await Pair.create(program, () => start(env));
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
}
