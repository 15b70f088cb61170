// The end of this process: becoming another program, which finds it as it was before Node started,
// or none.

import { SystemError } from '../errors.ts';
import { addon } from './addon.ts';

/** What a program takes over from the process that becomes it, and that Node changes. */
interface ProcessState {
  /** Descriptors from 3 on that stay open. */
  readonly descriptors: readonly number[];
  /** File status flags of 0, 1 and 2; negative: closed. */
  readonly stdioFlags: readonly number[];
  readonly ignoredSignals: readonly number[];
  /** Soft limit. It is only ever lowered. */
  readonly openFiles: number;
}

/**
 * Replaces this process by a program, found as execvp(3) finds it; all threads end. `changes` are
 * those of the environment, undefined for a variable that goes. Returns only when it failed.
 */
export function becomeProgram(
  words: readonly Uint8Array[],
  changes: Readonly<Record<string, string | undefined>>,
  state: ProcessState,
): SystemError {
  const variables = Object.entries(changes).map(([name, value]) => (value === undefined ? name : `${name}=${value}`));
  const { descriptors, ignoredSignals, openFiles } = state;
  const result = addon.exec(
    withNuls(words),
    withNuls(variables.map((text) => Buffer.from(text))),
    [0, 1, 2, ...descriptors],
    state.stdioFlags,
    ignoredSignals,
    openFiles,
  );
  return new SystemError(result, 'execve');
}

/**
 * Ends the process at once, also where a thread of it is stuck: `process.exit` waits for all
 * threads. What is not written yet is lost.
 */
export function endProcess(code: number): never {
  return addon.endProcess(code);
}

function withNuls(strings: readonly Uint8Array[]): Uint8Array {
  return Buffer.concat(strings.flatMap((each) => [each, Uint8Array.of(0)]));
}
