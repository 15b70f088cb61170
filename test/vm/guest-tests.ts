// Runs a file of tests inside a guest and tells each of its tests again here.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { Guest } from '../../src/lab/vm/index.ts';
import type { GuestTest } from './guest/reporter.ts';
import type { GuestPrograms } from './guest-programs.ts';

/** To be among the programs of guests that run tests. */
export const reporterFile = 'test/vm/guest/reporter.ts';

export interface GuestTestOptions {
  /** Tests that must have passed, lest none was found. */
  readonly least: number;
  readonly timeoutMs: number;
  /** Words before and after the program. */
  readonly prefix?: readonly string[];
  readonly arguments?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

export async function tellGuestTests(
  t: TestContext,
  guest: Guest,
  programs: GuestPrograms,
  file: string,
  options: GuestTestOptions,
): Promise<void> {
  const [node = '', ...rest] = programs.words(file, ...(options.arguments ?? []));
  const words = [...(options.prefix ?? []), node, `--test-reporter=${programs.path(reporterFile)}`, ...rest];
  const { status, signal, stdout, stderr } = await guest.run(words, {
    env: { ...programs.env, ...options.env },
    timeoutMs: options.timeoutMs,
  });
  const tests = stdout
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line): GuestTest => JSON.parse(line));
  for (const { name, isPassed, skip, error } of tests) {
    // What the device cannot do is no test of ours; it is told with the reason.
    if (skip !== undefined) t.diagnostic(`left out: ${name} (${skip})`);
    else {
      await t.test(name, () => {
        if (!isPassed) throw new Error(`in the guest: ${error}`);
      });
    }
  }
  const passed = tests.filter(({ isPassed, skip }) => isPassed && skip === undefined).length;
  const end = `${file} ended with ${signal ?? status} after ${tests.length} tests: ${stderr.slice(-2000)}`;
  assert.ok(passed >= options.least, `${passed} tests passed, expected ${options.least}; ${end}`);
  if (tests.every(({ isPassed }) => isPassed)) assert.equal(status, 0, end);
}
