// Which daemon's socket a program is told of.

import { readdirSync } from 'node:fs';
import { UsageError } from '../../errors.ts';
import { checkInstance, DEFAULT_INSTANCE, directSocketPath, runFolder } from '../../system/index.ts';

type Env = Readonly<Record<string, string | undefined>>;

/**
 * That of the instance that is named, the one in the environment, or that of the only instance
 * here. A daemon may be started later, so the socket need not be there.
 */
export function findDirectSocket(instance: string | undefined, env: Env): string {
  const folder = runFolder(env);
  if (instance !== undefined) {
    checkInstance(instance);
    return directSocketPath(instance, folder);
  }
  const given = env.MILLRACE_DIRECT_SOCKET ?? '';
  if (given !== '') return given;
  const [first = DEFAULT_INSTANCE, ...others] = instancesIn(folder);
  if (others.length === 0 || first === DEFAULT_INSTANCE) return directSocketPath(first, folder);
  throw new UsageError(`several daemons run here: ${[first, ...others].join(', ')}; choose one with --instance`);
}

/** The one with the usual name first. */
function instancesIn(folder: string): readonly string[] {
  try {
    return readdirSync(folder, { withFileTypes: true })
      .flatMap((entry) => (entry.isSocket() ? (/^([^.].*)\.direct$/.exec(entry.name)?.[1] ?? []) : []))
      .sort((left, right) => Number(right === DEFAULT_INSTANCE) - Number(left === DEFAULT_INSTANCE));
  } catch {
    // It does not exist or may not be read.
    return [];
  }
}
