// The library behaves as the kernel does: the same random sequences of calls on both ends of TCP
// connections have the same results, however often the connections are promoted and demoted.
//
//   MILLRACE_FUZZ_SEQUENCES, MILLRACE_FUZZ_SEED: how many sequences, and the number of the first

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { UnsupportedError } from '../../../src/errors.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { FuzzProgram } from './fuzz-program.ts';

const count = Number(process.env.MILLRACE_FUZZ_SEQUENCES ?? 400);
const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? 1);
/** Bytes that wait to be read are always fewer, as they are fewer than what the kernel holds. */
const ringBytes = 128 * 1024;
const memoryBytes = 64 * 1024 * 1024;
const MOST_SHOWN = 3;
const MOST_LISTED = 20;
/**
 * Calls that keep a connection direct and open, unless MILLRACE_FUZZ_ALL is set: docs/direct.md
 * tells what differs after resets, and where a program waits for something else.
 */
const chosen = process.env.MILLRACE_FUZZ_ALL === undefined ? { MILLRACE_FUZZ_EMULATED: '1' } : {};

type Env = Readonly<Record<string, string>>;
const plain: Env = chosen;

/** The library; without it, the test is skipped. */
function libraryOr(skip: (reason: string) => void): string | null {
  try {
    return directLibrary();
  } catch (error) {
    if (!(error instanceof UnsupportedError)) throw error;
    skip(error.message);
    return null;
  }
}

describe('random sequences of socket calls', () => {
  const program = new FuzzProgram();

  async function compare(other: Env, sequences: number): Promise<Readonly<Record<string, number>>> {
    const [left, right] = await Promise.all([plain, other].map(async (env) => await program.run(env, seed, sequences)));
    assert.ok(left !== undefined && right !== undefined);
    // A run that meets too many that hang does not go on.
    const different = [...right.lines]
      .filter(([number, line]) => line !== left.lines.get(number))
      .map(([number]) => number);
    const shown: string[] = [];
    for (const number of different.slice(0, MOST_SHOWN)) {
      shown.push((await program.difference(plain, other, number)) ?? `seed ${number}: not again when played alone`);
    }
    const some = different.slice(0, MOST_LISTED).join(' ');
    assert.equal(
      different.length,
      0,
      `${different.length} of ${right.lines.size} differ: ${some}\n${shown.join('\n')}`,
    );
    assert.equal(right.lines.size, sequences);
    return right.counters;
  }

  /** With all connections promoted and demoted at random. */
  async function compareDirect(t: TestContext, env: Env, sequences: number): Promise<void> {
    const library = libraryOr((reason) => t.skip(reason));
    if (library === null) return;
    using folder = temporaryFolder('fuzz');
    const socketPath = join(folder.path, 'fuzz.direct');
    using server = DirectServer.start({ socketPath, ringBytes, memoryBytes });
    const counters = await compare({ ...env, ...directEnvironment({}, library, socketPath) }, sequences);
    t.diagnostic(JSON.stringify(counters));
    const { promoted = 0, demoted = 0, direct = 0 } = counters;
    const isEnough = promoted > sequences / 4 && demoted > sequences / 20 && direct > sequences / 4;
    assert.ok(isEnough, JSON.stringify(counters));
    await eventually('nothing is left', () => server.status.connections === 0);
  }

  test('plain TCP gives the same results each time', async () => {
    await compare(plain, count);
  });

  test('with the library they are the same as without', async (t) => {
    await compareDirect(t, { ...chosen, MILLRACE_FUZZ_ATTENTIVE: '1' }, count);
  });
});
