// The folder of the sockets of daemons and backends.

import { resolve } from 'node:path';

/** `MILLRACE_RUN_DIR` of the environment, or /run/millrace. */
export function runFolder(env: Readonly<Record<string, string | undefined>>): string {
  const { MILLRACE_RUN_DIR: folder = '' } = env;
  return resolve(folder === '' ? '/run/millrace' : folder);
}
