// Names of daemons: several may run on one host, each as an instance with a name.

import { UsageError } from '../errors.ts';

export const DEFAULT_INSTANCE = 'millrace';
const pattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Throws when it cannot be the name of an instance: it becomes a part of file names. */
export function checkInstance(name: string): void {
  if (pattern.test(name)) return;
  throw new UsageError(`invalid instance name "${name}": use letters, digits, '.', '-', '_' (at most 64)`);
}
