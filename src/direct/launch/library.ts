// Where the library is that programs are started with, and the environment that loads it.

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { UnsupportedError } from '../../errors.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** The one that set-up built, or that the package brought. */
export function directLibrary(): string {
  const path = fileURLToPath(new URL('../../../build/direct/libmillrace-direct.so', import.meta.url));
  if (!existsSync(path)) {
    throw new UnsupportedError(`the library for direct connections is missing (${path}); run: npm run setup`);
  }
  // See ld.so(8): these separate libraries, and begin a name that is replaced.
  if (/[\s:$]/.test(path)) {
    throw new UnsupportedError(
      `LD_PRELOAD cannot name ${path}: move millrace below a path without spaces, ':' and '$'`,
    );
  }
  return path;
}

/** What to change in the environment of a program. Libraries that it preloads already stay. */
export function directEnvironment(env: Env, library: string, socketPath: string): Record<string, string> {
  const others = (env.LD_PRELOAD ?? '').split(/[\s:]+/).filter((each) => each !== '' && each !== library);
  return { LD_PRELOAD: [library, ...others].join(':'), MILLRACE_DIRECT_SOCKET: socketPath };
}
