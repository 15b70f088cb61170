// Where a backend is found when nobody says: its two sockets, which are not named as those of daemons are.

import { join } from 'node:path';
import { runDirOf } from '../server/index.ts';

type Env = Readonly<Record<string, string | undefined>>;

export function backendPaths(env: Env): { readonly guests: string; readonly api: string } {
  const folder = join(runDirOf(env), 'backend');
  return { guests: join(folder, 'guests'), api: join(folder, 'api') };
}
