// Every error millrace throws on purpose: one table of codes, and one class per kind of blame.

import { getSystemErrorName } from 'node:util';

/** Stable codes. System errors carry the errno name (`ECONNRESET`) instead. */
export const errorCodes = {
  MILLRACE_ERR_CLOSED: 'something was used after it was closed',
  MILLRACE_ERR_USAGE: 'a command line or an argument makes no sense',
  MILLRACE_ERR_NOT_RUNNING: 'what the command talks to is not running',
  MILLRACE_ERR_UNSUPPORTED: 'this machine, kernel or build cannot do it',
  MILLRACE_ERR_PERMISSION: 'the user may not do it',
  MILLRACE_ERR_UNSAFE_MEMORY: 'memory offered by another party could be taken away while it is in use',
  MILLRACE_ERR_FAILED: 'it was tried and did not work',
  MILLRACE_ERR_QUOTA: 'a guest of remoting would have more than its policy allows',
  MILLRACE_ERR_PROTOCOL: 'what the other side sent breaks the protocol',
  MILLRACE_ERR_BACKEND_GONE: 'the backend of a remote device has ended, or has ended the connection',
  MILLRACE_ERR_VORTEX_PEER_DIED: 'the process at the other end of a stream has ended',
  MILLRACE_ERR_VORTEX_CUT: 'the connection that carries a stream was lost',
  MILLRACE_ERR_VORTEX_TIMED_OUT: 'the other end of a stream did nothing for too long',
  MILLRACE_ERR_VORTEX_BEHIND: 'a program touched a stream further behind than it may come back',
  MILLRACE_ERR_VORTEX_PAST_END: 'a program touched a stream past its end',
  MILLRACE_ERR_VORTEX_ABORTED: 'this end closed a stream before all of it was through',
  MILLRACE_ERR_VORTEX_CLOSED_BY_PEER: 'the other end closed a stream before all of it was through',
  MILLRACE_ERR_VORTEX_PROTOCOL: 'the other end of a stream broke the rules',
  MILLRACE_ERR_VORTEX_SYSTEM: 'the system refused what a stream needs',
  MILLRACE_ERR_VORTEX_TERMINATED: 'the thread at one end of a stream was terminated',
  MILLRACE_ERR_FILES_PEER: 'the other side of a file transfer gave it up, and said why',
  MILLRACE_ERR_FILES_CHECKSUM: 'a file did not arrive as it was sent',
  MILLRACE_ERR_FILES_CHANGED: 'a file has changed while it was sent',
} as const;

export type ErrorCode = keyof typeof errorCodes;

export class MillraceError extends Error {
  readonly code: ErrorCode;

  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'MillraceError';
    this.code = code;
  }
}

/** The machine lacks something. The only error a test may turn into a skip. */
export class UnsupportedError extends MillraceError {
  constructor(message: string, options?: ErrorOptions) {
    super('MILLRACE_ERR_UNSUPPORTED', message, options);
    this.name = 'UnsupportedError';
  }
}

/** The program that calls made a mistake. */
export class UsageError extends MillraceError {
  constructor(message: string, options?: ErrorOptions) {
    super('MILLRACE_ERR_USAGE', message, options);
    this.name = 'UsageError';
  }
}

/** What the other side sent breaks the protocol; the connection with it ends. */
export class ProtocolError extends MillraceError {
  constructor(message: string, options?: ErrorOptions) {
    super('MILLRACE_ERR_PROTOCOL', message, options);
    this.name = 'ProtocolError';
  }
}

/** A system call failed. Shaped like the errors of Node's own modules. */
export class SystemError extends Error {
  readonly code: string;
  /** Negative, as in Node's own errors. */
  readonly errno: number;
  readonly syscall: string;

  constructor(errno: number, syscall: string, what?: string) {
    const code = getSystemErrorName(errno);
    super(what === undefined ? `${syscall}: ${code}` : `${syscall}: ${code} (${what})`);
    this.name = 'SystemError';
    this.code = code;
    this.errno = errno;
    this.syscall = syscall;
  }
}

const shortages: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM', 'ENOSPC', 'E2BIG']);

/** The process or the machine has run out of something, for now. Errors of Node count as well. */
export function isShortage(error: unknown): boolean {
  return error instanceof Error && 'code' in error && shortages.has(String(error.code));
}

/** Does it; undefined where the process or the machine has run out of something, for now. */
export function unlessShort<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (!isShortage(error)) throw error;
    return undefined;
  }
}
