// Tells people who lack the rights for a lab what to do about it.

import { MillraceError } from '../errors.ts';

export function permissionError(reason: string, options?: ErrorOptions): MillraceError {
  const advice = 'a lab needs root, with the right to make namespaces and cgroups; try sudo';
  return new MillraceError('MILLRACE_ERR_PERMISSION', `${reason} (${advice})`, options);
}

/** Passes other errors through. EROFS: a container that sees the machine's cgroups read-only. */
export function explainPermission(attempt: string, error: unknown): unknown {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  if (code !== 'EACCES' && code !== 'EPERM' && code !== 'EROFS') return error;
  return permissionError(`${attempt}: ${(error as Error).message}`, { cause: error });
}
