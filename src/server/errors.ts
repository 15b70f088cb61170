// Errors in answers of the API, `{ error, code }`, and the HTTP status of each code.

import type { Context } from 'hono';
import { HTTPException } from 'hono/http-exception';
import { type ErrorCode, MillraceError, SystemError } from '../errors.ts';

export interface ErrorAnswer {
  /** One line for people. */
  readonly error: string;
  /** `MILLRACE_ERR_…` or the errno name. */
  readonly code: string;
}

type Status = 400 | 403 | 404 | 413 | 500 | 501 | 503 | 504;

const statusOf: Readonly<Partial<Record<ErrorCode, Status>>> = {
  MILLRACE_ERR_USAGE: 400,
  MILLRACE_ERR_PERMISSION: 403,
  // The connection or peer that was asked for is not there; the daemon itself is.
  MILLRACE_ERR_NOT_RUNNING: 404,
  MILLRACE_ERR_UNSUPPORTED: 501,
  MILLRACE_ERR_CLOSED: 503,
};

const codeOf: Readonly<Partial<Record<Status, ErrorCode>>> = {
  400: 'MILLRACE_ERR_USAGE',
  403: 'MILLRACE_ERR_PERMISSION',
  404: 'MILLRACE_ERR_USAGE',
  413: 'MILLRACE_ERR_USAGE',
};

class AnswerTimeout extends MillraceError {
  constructor(what: string, timeoutMs: number) {
    super('MILLRACE_ERR_FAILED', `${what}: the daemon gave no answer within ${timeoutMs / 1000} s`);
    this.name = 'AnswerTimeout';
  }
}

/** Waits at most so long. The work itself goes on, and its late answer is dropped. */
export async function withinMs<T>(timeoutMs: number, what: string, answer: Promise<T>): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new AnswerTimeout(what, timeoutMs)), timeoutMs);
  try {
    return await Promise.race([answer, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

export function answerError(context: Context, error: unknown): Response {
  if (error instanceof AnswerTimeout) return answer(context, 504, error.message, error.code);
  if (error instanceof MillraceError) {
    return answer(context, statusOf[error.code] ?? 500, error.message, error.code);
  }
  if (error instanceof SystemError) return answer(context, 500, error.message, error.code);
  if (error instanceof HTTPException) return answer(context, 400, error.message, 'MILLRACE_ERR_USAGE');
  return answer(context, 500, error instanceof Error ? error.message : String(error), 'MILLRACE_ERR_FAILED');
}

export function refusal(context: Context, status: Status, error: string): Response {
  return answer(context, status, error, codeOf[status] ?? 'MILLRACE_ERR_FAILED');
}

function answer(context: Context, status: Status, error: string, code: string): Response {
  const body: ErrorAnswer = { error, code };
  return context.json(body, status);
}
