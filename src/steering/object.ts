// The BPF object that set-up built from bpf/.

import { readFileSync } from 'node:fs';
import { MillraceError } from '../errors.ts';
import { loadMethods } from './methods.ts';

/** As in rules. */
export type MethodName = 'connect' | 'shortcut';

export function readObject(): Uint8Array {
  const file = new URL('../../build/bpf/steer.o', import.meta.url);
  try {
    return readFileSync(file);
  } catch (error) {
    throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', 'build/bpf/steer.o is not there; run: npm run setup', {
      cause: error,
    });
  }
}

/**
 * Loads every method and takes it away again: why those that do not work here do not, by name.
 * Throws when none does.
 */
export function tryMethods(): ReadonlyMap<string, string> {
  const { object, missing } = loadMethods(readObject());
  object.close();
  return missing;
}
