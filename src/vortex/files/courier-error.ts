// Why a file did not get through, and how one side tells the other.

import { type ErrorCode, MillraceError } from '../../errors.ts';

/** What goes over the wire: a stable code (`ENOSPC`, `MILLRACE_ERR_…`), and words for people. */
export interface Failure {
  readonly code: string;
  readonly reason: string;
}

export class CourierError extends MillraceError {
  /** What the other side called it, when the problem is there. */
  readonly peerCode: string | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions & { readonly peerCode?: string } = {}) {
    super(code, message, options);
    this.name = 'CourierError';
    this.peerCode = options.peerCode;
  }

  static ofPeer(side: 'sender' | 'receiver', { code, reason }: Failure): CourierError {
    return new CourierError('MILLRACE_ERR_COURIER_PEER', `the ${side} gave up: ${reason}`, { peerCode: code });
  }
}

/** A file operation that the system refused, in words that say what to do. */
export function fileError(attempt: string, error: unknown): MillraceError {
  if (error instanceof MillraceError) return error;
  const { code = 'UNKNOWN', message } = error as NodeJS.ErrnoException;
  const advice = adviceOf(code);
  const text = `${attempt}: ${code === 'UNKNOWN' ? message : code}${advice === undefined ? '' : ` (${advice})`}`;
  return new MillraceError(blameOf(code), text, { cause: error });
}

/** What the other side is told of an error here. */
export function failureOf(error: unknown): Failure {
  if (!(error instanceof Error)) return { code: 'MILLRACE_ERR_FAILED', reason: String(error) };
  if (error.name === 'AbortError') return { code: 'MILLRACE_ERR_CLOSED', reason: 'it was stopped' };
  const { cause } = error;
  const inner = cause instanceof Error && 'code' in cause ? String(cause.code) : '';
  const own = 'code' in error ? String(error.code) : '';
  return { code: /^E[A-Z0-9]+$/.test(inner) ? inner : own, reason: error.message };
}

function blameOf(code: string): ErrorCode {
  if (code === 'EACCES' || code === 'EPERM' || code === 'EROFS') return 'MILLRACE_ERR_PERMISSION';
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'EISDIR' ? 'MILLRACE_ERR_USAGE' : 'MILLRACE_ERR_FAILED';
}

function adviceOf(code: string): string | undefined {
  switch (code) {
    case 'ENOSPC':
      return 'the disk is full; make room and run the same command again';
    case 'EDQUOT':
      return 'the quota is used up; make room and run the same command again';
    case 'EACCES':
    case 'EPERM':
      return 'this user may not';
    case 'EROFS':
      return 'the file system is read-only';
    case 'EFBIG':
      return 'the file system takes no file that long';
    case 'EIO':
      return 'the disk has failed';
    case 'ENOENT':
      return 'there is no such file or folder';
    default:
      return undefined;
  }
}
