// From -errno to errors. Hot calls compare the number themselves; all others go through `check`.

import { constants } from 'node:os';
import { SystemError } from '../errors.ts';

/** What a non-blocking call returns when there is nothing to do now. */
export const AGAIN = -constants.errno.EAGAIN;

export function check(result: number, syscall: string, what?: string): number {
  if (result < 0) throw new SystemError(result, syscall, what);
  return result;
}

/** For calls that would block: a count, or `AGAIN`; anything else throws. */
export function checkAgain(result: number, syscall: string): number {
  if (result < 0 && result !== AGAIN) throw new SystemError(result, syscall);
  return result;
}

/** For calls that return something better than a number when they work. */
export function checkValue<T extends object>(result: T | number, syscall: string, what?: string): T {
  if (typeof result === 'number') throw new SystemError(result, syscall, what);
  return result;
}
