// The library behaves as the kernel does: the same random sequences of calls on both ends of TCP
// connections have the same results, however often the connections are promoted and demoted.
//
//   MILLRACE_FUZZ_SEQUENCES, MILLRACE_FUZZ_SEED: how many sequences, and the number of the first

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DirectServer } from '../../../src/direct/index.ts';
import { directEnvironment, directLibrary } from '../../../src/direct/launch/index.ts';
import { UnsupportedError } from '../../../src/errors.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { temporaryFolder } from '../../../workbench/worlds/temporary-folder.ts';
import { FuzzProgram } from './fuzz-program.ts';

const count = Number(process.env.MILLRACE_FUZZ_SEQUENCES ?? 4000);
const seed = Number(process.env.MILLRACE_FUZZ_SEED ?? 1);
/** Bytes that wait to be read are always fewer, as they are fewer than what the kernel holds. */
const ringBytes = 128 * 1024;
const MOST_SHOWN = 3;
const plain = {};

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

  async function compare(
    other: Readonly<Record<string, string>>,
    sequences: number,
  ): Promise<Readonly<Record<string, number>>> {
    const [left, right] = await Promise.all([plain, other].map(async (env) => await program.run(env, seed, sequences)));
    assert.ok(left !== undefined && right !== undefined);
    const different = [...left.lines]
      .filter(([number, line]) => line !== right.lines.get(number))
      .map(([number]) => number);
    const shown: string[] = [];
    for (const number of different.slice(0, MOST_SHOWN)) {
      shown.push((await program.difference(plain, other, number)) ?? `seed ${number}: not again when played alone`);
    }
    assert.equal(
      different.length,
      0,
      `${different.length} of ${sequences} differ: ${different.slice(0, 20).join(' ')} …\n${shown.join('\n')}`,
    );
    return right.counters;
  }

  test('plain TCP gives the same results each time', async () => {
    const { broken } = await compare(plain, Math.ceil(count / 8));
    assert.equal(broken, 0);
  });

  test('with the library they are the same as without', async (t) => {
    const library = libraryOr((reason) => t.skip(reason));
    if (library === null) return;
    using folder = temporaryFolder('fuzz');
    const socketPath = join(folder.path, 'fuzz.direct');
    using server = DirectServer.start({ socketPath, ringBytes, memoryBytes: 64 * 1024 * 1024 });
    const counters = await compare(directEnvironment({}, library, socketPath), count);
    t.diagnostic(JSON.stringify(counters));
    const { promoted = 0, demoted = 0, direct = 0, broken } = counters;
    assert.ok(promoted > count / 4 && demoted > count / 20 && direct > count / 4, JSON.stringify(counters));
    assert.equal(broken, 0);
    // Those who went on in other programs have told the daemon as well.
    await eventually('nothing is left', () => server.status.connections === 0);
  });
});
