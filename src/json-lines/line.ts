// One line of JSON over a stream, for who waits for it; what comes after the line stays in the
// stream.

import type { Duplex } from 'node:stream';
import { MillraceError } from '../errors.ts';
import { LineSplitter } from './line-splitter.ts';
import { parseJson } from './protocol.ts';

export interface LineOptions {
  readonly signal?: AbortSignal | undefined;
  readonly maxBytes?: number | undefined;
}

export function writeLine(socket: Duplex, value: unknown): void {
  socket.write(`${JSON.stringify(value)}\n`);
}

/**
 * Reads one line and parses it; what comes after it stays in the stream. Rejects when the stream
 * ends or fails first, when the signal is aborted, and with a ProtocolError when the line is too
 * long or no JSON. Leaves no listener behind.
 */
export async function readLine(socket: Duplex, options: LineOptions = {}): Promise<unknown> {
  const { signal, maxBytes } = options;
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const lines = new LineSplitter(maxBytes);

  const onReadable = (): void => {
    try {
      for (let chunk = readBytes(socket); chunk !== undefined; chunk = readBytes(socket)) {
        lines.push(chunk);
        const line = lines.next();
        if (line === undefined) continue;
        // Before bytes are put back: that makes the stream readable again, and they are not for us.
        socket.off('readable', onReadable);
        const rest = lines.takeRest();
        if (rest.length > 0) socket.unshift(rest);
        resolve(line);
        return;
      }
    } catch (error) {
      socket.off('readable', onReadable);
      reject(error);
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
    return parseJson(await promise, 'talk to the peer');
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

/**
 * A process that is killed with bytes unread resets its connection instead of ending it: to its
 * peer that is the same.
 */
function reasonOf({ code, message }: NodeJS.ErrnoException): string {
  return code === 'ECONNRESET' || code === 'EPIPE' ? `it closed the connection (${code})` : message;
}

function failure(reason: string, cause?: Error): MillraceError {
  return new MillraceError('MILLRACE_ERR_FAILED', `talk to the peer: ${reason}`, { cause });
}
