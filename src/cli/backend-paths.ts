// The default paths of a backend's two sockets, which lie apart from those of daemons.

import { join } from 'node:path';
import { runFolder } from '../system/index.ts';

type Env = Readonly<Record<string, string | undefined>>;

export function backendPaths(env: Env): { readonly guests: string; readonly api: string } {
  const folder = join(runFolder(env), 'backend');
  return { guests: join(folder, 'guests'), api: join(folder, 'api') };
}
