// Turns a permission error of a lab into one that says what to do.

import { MillraceError } from '../errors.ts';

export function permissionError(reason: string, options?: ErrorOptions): MillraceError {
  const advice = 'a lab needs root, with the right to make namespaces and cgroups; try sudo';
  return new MillraceError('MILLRACE_ERR_PERMISSION', `${reason} (${advice})`, options);
}

/**
 * Returns other errors as they are. EROFS occurs in a container that has the machine's cgroups
 * read-only.
 */
export function explainPermission(attempt: string, error: unknown): unknown {
  const code = error instanceof Error ? (error as NodeJS.ErrnoException).code : undefined;
  if (code !== 'EACCES' && code !== 'EPERM' && code !== 'EROFS') return error;
  return permissionError(`${attempt}: ${(error as Error).message}`, { cause: error });
}
