// The library behaves as the kernel does: the same random sequences of calls on both ends of TCP
// connections have the same results, however often the connections are promoted and demoted.
// fuzz-campaign.ts plays more of them.

import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { UnsupportedError } from '../../../src/errors.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { type Comparison, type Env, FuzzProgram } from './fuzz-program.ts';
import { type FuzzWorld, kinds, oneHost } from './fuzz-worlds.ts';

const SEED = 1;
const SEQUENCES = 400;
const MOST_SHOWN = 3;
const MOST_LISTED = 20;

/** A world, or null where the library is not there: then the test is skipped. */
function worldOr(t: TestContext, make: () => FuzzWorld): FuzzWorld | null {
  try {
    return make();
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    t.skip(error.message);
    return null;
  }
}

describe('random sequences of socket calls', () => {
  const program = new FuzzProgram();

  async function compare(plain: Env, other: Env): Promise<Comparison> {
    const result = await program.compare(plain, other, SEED, SEQUENCES);
    const { different, sequences } = result;
    const shown: string[] = [];
    for (const seed of different.slice(0, MOST_SHOWN)) shown.push(await program.difference(plain, other, seed));
    const some = different.slice(0, MOST_LISTED).join(' ');
    assert.equal(different.length, 0, `${different.length} of ${sequences} differ: ${some}\n${shown.join('\n')}`);
    assert.equal(sequences, SEQUENCES);
    return result;
  }

  test('plain TCP gives the same results each time', async () => {
    await compare(kinds.emulated, kinds.emulated);
  });

  test('with the library they are the same as without', async (t) => {
    using world = worldOr(t, () => oneHost(kinds.emulated));
    if (world === null) return;
    const { counters } = await compare(world.plain, world.direct);
    t.diagnostic(JSON.stringify(counters));
    const { promoted = 0, demoted = 0, direct = 0 } = counters;
    const isEnough = promoted > SEQUENCES / 4 && demoted > SEQUENCES / 20 && direct > SEQUENCES / 4;
    assert.ok(isEnough, JSON.stringify(counters));
    await eventually('nothing is left', () => world.connections() === 0);
  });
});
