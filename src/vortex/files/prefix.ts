// The checksum of the first bytes of a file, which goes on to become that of the whole file.

import { createHash, type Hash } from 'node:crypto';
import { UsageError } from '../../errors.ts';

const PIECE_BYTES = 1024 * 1024;

/** A file, or a part of one. */
interface Readable {
  fill(into: Uint8Array, position: number, signal: AbortSignal): Promise<number>;
}

export async function hashPrefix(
  file: Readable,
  lengthBytes: number,
  signal: AbortSignal,
  onProgress: (bytes: number) => void,
): Promise<Hash> {
  const hash = createHash('sha256');
  const piece = new Uint8Array(Math.min(PIECE_BYTES, lengthBytes));
  for (let position = 0; position < lengthBytes; ) {
    signal.throwIfAborted();
    const wanted = piece.subarray(0, Math.min(piece.length, lengthBytes - position));
    const got = await file.fill(wanted, position, signal);
    if (got === 0) throw new UsageError(`a file of ${position} bytes has no first ${lengthBytes}`);
    hash.update(wanted.subarray(0, got));
    position += got;
    onProgress(position);
  }
  return hash;
}

/** The digest of what was hashed so far; the hash goes on. */
export function sumSoFar(hash: Hash): string {
  return hash.copy().digest('hex');
}
