// Runs a file of tests inside a guest and tells each of its tests again here.

import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Guest } from '../../src/lab/vm/index.ts';
import type { GuestTest } from './guest/reporter.ts';

const folder = new URL('guest/', import.meta.url);

/**
 * Node in a guest. Stripping types is WebAssembly, and V8 that recompiles it while it runs crashes now and then on an
 * emulated processor (QEMU 7.2, several threads): in Runtime_WasmTriggerTierUp, before any of our code.
 */
export const guestNode: readonly string[] = [process.execPath, '--no-warnings', '--liftoff-only'];

/** Compiling takes long on an emulated processor; this way each file is compiled once. */
export const guestEnv = { NODE_COMPILE_CACHE: '/tmp/compile-cache' };

export interface GuestTestOptions {
  /** Tests that must have passed, lest none was found. */
  readonly least: number;
  readonly timeoutMs: number;
  /** Words before and after the program. */
  readonly prefix?: readonly string[];
  readonly arguments?: readonly string[];
  /** Node and the program, in place of its source as it is here. */
  readonly words?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
}

/** `file` is one of guest/. */
export async function tellGuestTests(
  t: TestContext,
  guest: Guest,
  file: string,
  options: GuestTestOptions,
): Promise<void> {
  const reporter = fileURLToPath(new URL('reporter.ts', folder));
  const [program = '', ...rest] = options.words ?? [...guestNode, fileURLToPath(new URL(file, folder))];
  const words = [
    ...(options.prefix ?? []),
    program,
    `--test-reporter=${reporter}`,
    ...rest,
    ...(options.arguments ?? []),
  ];
  const { status, signal, stdout, stderr } = await guest.run(words, {
    env: options.env ?? guestEnv,
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
