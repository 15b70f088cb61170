// Why a file transfer failed, and what of that one side tells the other.

import { type ErrorCode, MillraceError } from '../../errors.ts';
import type { MessageOfKind } from './protocol.ts';

/** What one side tells the other. */
type Failure = Omit<MessageOfKind<'failed'>, 'kind'>;

export class FileTransferError extends MillraceError {
  /** The code at the other side, when it failed there. */
  readonly peerCode: string | undefined;

  constructor(code: ErrorCode, message: string, options: ErrorOptions & { readonly peerCode?: string } = {}) {
    super(code, message, options);
    this.name = 'FileTransferError';
    this.peerCode = options.peerCode;
  }

  static ofPeer(side: 'sender' | 'receiver', { code, reason }: Failure): FileTransferError {
    return new FileTransferError('MILLRACE_ERR_FILES_PEER', `the ${side} gave up: ${reason}`, { peerCode: code });
  }
}

/** The error of a file operation, with advice where there is some. */
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
  const code = /^E[A-Z0-9]+$/.test(inner) ? inner : own;
  return { code: /^[A-Z][A-Z0-9_]{1,60}$/.test(code) ? code : 'MILLRACE_ERR_FAILED', reason: error.message };
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
