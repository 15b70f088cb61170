// Where a file goes that is no file: a pipe.

import type { Writable } from 'node:stream';
import { fileError } from './file-transfer-error.ts';

/** Resolves when the bytes are on their way, and their memory may be used for others. */
export async function writeToPipe(stream: Writable, bytes: Uint8Array): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  // A copy: a stream may keep what it was given longer than it says.
  stream.write(Buffer.from(bytes), (error) => (error ? reject(fileError('write the pipe', error)) : resolve()));
  await promise;
}
