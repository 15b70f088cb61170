// Writes what a receiver gets to a pipe.

import type { Writable } from 'node:stream';
import { fileError } from './file-transfer-error.ts';

/** Resolves when the bytes are written, and their memory may be used again. */
export async function writeToPipe(stream: Writable, bytes: Uint8Array): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // A copy, because a stream may keep a buffer longer than until its callback.
  stream.write(Buffer.from(bytes), (error) => (error ? reject(fileError('write the pipe', error)) : resolve()));
  await promise;
}
