// Errors that the backend sends to the guest, which throws them again: with class, code, errno and
// message.

import { type ErrorCode, errorCodes, MillraceError, SystemError, UnsupportedError, UsageError } from '../../errors.ts';
import type { WordReader, WordWriter } from './words.ts';

const classes = { other: 0, system: 1, usage: 2, unsupported: 3, millrace: 4 } as const;

export function writeError(writer: WordWriter, error: unknown): void {
  writer.clear();
  if (error instanceof SystemError) {
    writer.u32(classes.system).u32(-error.errno).text(error.syscall).text(error.message);
  } else if (error instanceof UsageError) {
    writer.u32(classes.usage).text(error.message);
  } else if (error instanceof UnsupportedError) {
    writer.u32(classes.unsupported).text(error.message);
  } else if (error instanceof MillraceError) {
    writer.u32(classes.millrace).text(error.code).text(error.message);
  } else {
    writer.u32(classes.other).text(error instanceof Error ? `${error.name}: ${error.message}` : String(error));
  }
}

export function readError(reader: WordReader): Error {
  switch (reader.u32()) {
    case classes.system: {
      const errno = reader.u32();
      const error = new SystemError(errno > 0 && errno < 4096 ? -errno : -1, reader.text());
      // The backend's message says on what the call was tried.
      error.message = reader.text();
      return error;
    }
    case classes.usage:
      return new UsageError(reader.text());
    case classes.unsupported:
      return new UnsupportedError(reader.text());
    case classes.millrace: {
      const code = reader.text();
      const known = Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'MILLRACE_ERR_FAILED';
      return new MillraceError(known, reader.text());
    }
    default:
      return new MillraceError('MILLRACE_ERR_FAILED', `the backend failed: ${reader.text()}`);
  }
}
