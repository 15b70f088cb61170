// The exit codes of the command line, and the code of each error.

import { MillraceError, SystemError } from '../errors.ts';

export const exitCode = {
  ok: 0,
  failed: 1,
  usage: 2,
  notRunning: 3,
  unsupported: 4,
  permission: 5,
  /** 128 + SIGINT, as shells report it. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof exitCode)[keyof typeof exitCode];

export function exitCodeOf(error: unknown): ExitCode {
  if (error instanceof MillraceError) {
    switch (error.code) {
      case 'MILLRACE_ERR_USAGE':
        return exitCode.usage;
      case 'MILLRACE_ERR_NOT_RUNNING':
        return exitCode.notRunning;
      case 'MILLRACE_ERR_UNSUPPORTED':
        return exitCode.unsupported;
      case 'MILLRACE_ERR_PERMISSION':
        return exitCode.permission;
      default:
        return exitCode.failed;
    }
  }
  if (error instanceof SystemError && (error.code === 'EPERM' || error.code === 'EACCES')) return exitCode.permission;
  return exitCode.failed;
}
