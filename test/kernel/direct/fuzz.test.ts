// The library behaves as the kernel does: the same random sequences of calls on both ends of TCP
// connections have the same results, however often the connections are promoted and demoted.
// fuzz-campaign.ts plays more of them.

import assert from 'node:assert/strict';
import { before, describe, type TestContext, test } from 'node:test';
import { UnsupportedError } from '../../../src/errors.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { sweepDeadTests } from '../../../workbench/worlds/lab-runs.ts';
import { type Env, FuzzProgram } from './fuzz-program.ts';
import { type FuzzWorld, kinds } from './fuzz-worlds.ts';

const SEED = 1;
const MOST_SHOWN = 3;
const MOST_LISTED = 20;

before(sweepDeadTests);

/** A world, or null where the library is not there: then the test is skipped. */
async function worldOf(t: TestContext, kind: string): Promise<FuzzWorld | null> {
  try {
    return (await kinds[kind]?.()) ?? null;
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    t.skip(error.message);
    return null;
  }
}

describe('random sequences of socket calls', { concurrency: false }, () => {
  const program = new FuzzProgram();

  async function compare(
    plain: Env,
    other: Env,
    count: number,
    seed = SEED,
  ): Promise<Readonly<Record<string, number>>> {
    const { different, sequences, counters } = await program.compare(plain, other, seed, count);
    const shown = different.slice(0, MOST_SHOWN).map(({ text }) => text);
    const some = different.slice(0, MOST_LISTED).map(({ seed }) => seed);
    assert.equal(
      different.length,
      0,
      `${different.length} of ${sequences} differ: ${some.join(' ')}\n${shown.join('\n')}`,
    );
    assert.equal(sequences, count);
    return counters;
  }

  for (const [kind, title, count] of [
    ['emulated', 'with the library they are the same as without', 400],
    ['all', 'with ends, resets, exec and stdio they are the same as without the library', 400],
    ['between-hosts', 'between two hosts they are the same as without the library', 100],
    ['all-between-hosts', 'so they are with ends, resets, exec and stdio', 100],
  ] as const) {
    test(title, async (t) => {
      await using world = await worldOf(t, kind);
      if (world === null) return;
      const counters = await compare(world.plain, world.direct, count);
      t.diagnostic(JSON.stringify(counters));
      const { promoted = 0, demoted = 0, direct = 0 } = counters;
      const isEnough = promoted > count / 4 && demoted > count / 20 && direct > count / 4;
      assert.ok(isEnough, JSON.stringify(counters));
      await eventually('nothing is left', async () => (await world.connections()) === 0);
    });
  }

  // What was wrong is in the messages of the commits that added them.
  for (const [kind, title, seeds] of [
    ['all', 'those that differed once', [7843, 13602, 18163, 24991, 28847, 32714, 33505, 74335]],
    ['all-between-hosts', 'those that differed once between two hosts', [190, 503, 1461, 1835, 3401]],
  ] as const) {
    test(title, async (t) => {
      await using world = await worldOf(t, kind);
      if (world === null) return;
      for (const seed of seeds) await compare(world.plain, world.direct, 1, seed);
    });
  }

  test('plain TCP gives the same results each time', async () => {
    const plain = { MILLRACE_FUZZ_EMULATED: '1' };
    await compare(plain, plain, 400);
  });
});
