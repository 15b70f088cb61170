// Where a daemon's control socket is, and which daemon a command means when none is named.

import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { UsageError } from '../errors.ts';
import { checkInstance, DEFAULT_INSTANCE, runFolder } from '../system/index.ts';
import { probeUnix } from './unix-socket.ts';

const suffix = '.sock';

type Env = Readonly<Record<string, string | undefined>>;

/** What the user gave on the command line. */
export interface SocketChoice {
  readonly instance?: string;
  readonly socket?: string;
}

/** The socket of the daemon called `instance`. */
export function socketPathOf(instance: string, env: Env): string {
  checkInstance(instance);
  return join(runFolder(env), `${instance}${suffix}`);
}

/** The path given, the instance given, or the only daemon that runs here. */
export async function findSocket({ instance, socket }: SocketChoice, env: Env): Promise<string> {
  if (socket !== undefined) return socket;
  if (instance !== undefined) return socketPathOf(instance, env);
  const folder = runFolder(env);
  const names = socketsIn(folder);
  if (names.length <= 1) return join(folder, names[0] ?? `${DEFAULT_INSTANCE}${suffix}`);
  // Dead daemons leave their sockets behind.
  const answers = await Promise.all(names.map((name) => probeUnix(join(folder, name))));
  const alive = names.filter((_, index) => answers[index] === 'alive');
  if (alive.length > 1) {
    const instances = alive.map((name) => name.slice(0, -suffix.length)).join(', ');
    throw new UsageError(`several daemons run here: ${instances}; choose one with --instance`);
  }
  return join(folder, alive[0] ?? `${DEFAULT_INSTANCE}${suffix}`);
}

function socketsIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isSocket() && /^[^.].*\.sock$/.test(entry.name))
      .map(({ name }) => name)
      .sort();
  } catch {
    // It does not exist or may not be read; connecting to the default socket fails with a better
    // error.
    return [];
  }
}
