// One line of JSON over a stream: what two programs say to each other before they have a queue pair.

import type { Duplex } from 'node:stream';
import { MillraceError } from '../errors.ts';

export interface LineOptions {
  readonly signal?: AbortSignal;
  readonly maxBytes?: number;
}

const newline = 10;

export function writeLine(socket: Duplex, value: unknown): void {
  socket.write(`${JSON.stringify(value)}\n`);
}

/**
 * Reads one line and parses it; what comes after it stays in the stream. Rejects when the stream ends or fails first, when
 * the line is too long or no JSON, and when the signal is aborted. Leaves no listener behind.
 */
export async function readLine(socket: Duplex, options: LineOptions = {}): Promise<unknown> {
  const { signal, maxBytes = 65_536 } = options;
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const collected: Buffer[] = [];
  let sizeBytes = 0;

  const onReadable = (): void => {
    for (let chunk = readBytes(socket); chunk !== undefined; chunk = readBytes(socket)) {
      const end = chunk.indexOf(newline);
      collected.push(end < 0 ? chunk : chunk.subarray(0, end));
      sizeBytes += end < 0 ? chunk.length : end;
      // Before bytes are put back: that makes the stream readable again, and they are not for us.
      if (end >= 0 || sizeBytes > maxBytes) socket.off('readable', onReadable);
      if (end >= 0 && end + 1 < chunk.length) socket.unshift(chunk.subarray(end + 1));
      if (sizeBytes > maxBytes) reject(failure(`it sent a line of more than ${maxBytes} bytes`));
      else if (end >= 0) resolve(Buffer.concat(collected).toString());
      if (end >= 0 || sizeBytes > maxBytes) return;
    }
  };
  const onEnd = (): void => reject(failure('it closed the connection'));
  const onError = (error: NodeJS.ErrnoException): void => reject(failure(reasonOf(error), error));
  const onAbort = (): void => reject(signal?.reason);

  socket.on('error', onError);
  socket.on('end', onEnd);
  socket.on('close', onEnd);
  signal?.addEventListener('abort', onAbort);
  socket.on('readable', onReadable);
  try {
    if (socket.errored) onError(socket.errored);
    else if (socket.destroyed || socket.readableEnded) onEnd();
    else onReadable();
    return parse(await promise);
  } finally {
    socket.off('readable', onReadable);
    socket.off('error', onError);
    socket.off('end', onEnd);
    socket.off('close', onEnd);
    signal?.removeEventListener('abort', onAbort);
  }
}

function readBytes(socket: Duplex): Buffer | undefined {
  // A string, if somebody has set an encoding.
  const chunk: Buffer | string | null = socket.read();
  return typeof chunk === 'string' ? Buffer.from(chunk) : (chunk ?? undefined);
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw failure('it sent something else than a line of JSON');
  }
}

/** A process that is killed with bytes unread resets its connection instead of ending it: to its peer that is the same. */
function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  return code === 'ECONNRESET' || code === 'EPIPE' ? `it closed the connection (${code})` : message;
}

function failure(reason: string, cause?: Error): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `talk to the peer: ${reason}`, { cause });
}
