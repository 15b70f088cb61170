// The source of a transfer: a file, which can be read at any position and again, or a pipe, which
// is read once.

import { type FileHandle, open } from 'node:fs/promises';
import { basename } from 'node:path';
import type { Readable } from 'node:stream';
import { MillraceError, UsageError } from '../../errors.ts';
import { abortable } from './abortable.ts';
import { FileTransferError, fileError } from './file-transfer-error.ts';
import type { FileOffer } from './protocol.ts';

export interface Source extends AsyncDisposable {
  readonly offer: FileOffer;
  /** Whether it can be read a second time. */
  readonly isFile: boolean;
  /** Fills `into` with the bytes from `position` on: with fewer only at the end. */
  fill(into: Uint8Array, position: number, signal: AbortSignal): Promise<number>;
  /** Throws when the file has changed since it was opened. */
  check(): Promise<void>;
}

export async function openFileSource(path: string): Promise<Source> {
  let handle: FileHandle;
  try {
    handle = await open(path, 'r');
  } catch (error) {
    throw fileError(`open ${path}`, error);
  }
  await using undo = new AsyncDisposableStack();
  undo.defer(() => handle.close());
  const stat = await handle.stat({ bigint: true });
  if (stat.isDirectory()) throw new UsageError(`send ${path}: it is a folder (tar c ${path} | millrace send -)`);
  undo.move();
  // A device or a named pipe has no size that means anything.
  if (!stat.isFile()) return new PipeSource(handle.createReadStream());
  const offer = { name: basename(path), sizeBytes: Number(stat.size), modifiedNs: String(stat.mtimeNs) };
  return new FileSource(path, handle, offer);
}

class FileSource implements Source {
  readonly isFile = true;
  readonly offer: FileOffer;
  readonly #path: string;
  readonly #handle: FileHandle;

  constructor(path: string, handle: FileHandle, offer: FileOffer) {
    this.#path = path;
    this.#handle = handle;
    this.offer = offer;
  }

  async fill(into: Uint8Array, position: number): Promise<number> {
    let got = 0;
    try {
      while (got < into.length) {
        const { bytesRead } = await this.#handle.read(into, got, into.length - got, position + got);
        if (bytesRead === 0) break;
        got += bytesRead;
      }
    } catch (error) {
      throw fileError(`read ${this.#path}`, error);
    }
    return got;
  }

  async check(): Promise<void> {
    const { size, mtimeNs } = await this.#handle.stat({ bigint: true });
    const { sizeBytes, modifiedNs } = this.offer;
    if (Number(size) === sizeBytes && String(mtimeNs) === modifiedNs) return;
    throw new FileTransferError(
      'MILLRACE_ERR_FILES_CHANGED',
      `${this.#path} has changed while it was sent; send it again`,
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }
}

export class PipeSource implements Source {
  readonly isFile = false;
  readonly offer: FileOffer = { name: undefined, sizeBytes: undefined, modifiedNs: undefined };
  readonly #stream: Readable;
  readonly #chunks: AsyncIterator<Uint8Array>;
  /** Bytes of the last chunk that did not fit. */
  #rest = new Uint8Array(0);

  constructor(stream: Readable) {
    this.#stream = stream;
    this.#chunks = stream[Symbol.asyncIterator]();
  }

  async fill(into: Uint8Array, _position: number, signal: AbortSignal): Promise<number> {
    let got = 0;
    while (got < into.length) {
      if (this.#rest.length === 0 && !(await this.#read(signal))) break;
      const taken = this.#rest.subarray(0, into.length - got);
      into.set(taken, got);
      got += taken.length;
      this.#rest = this.#rest.subarray(taken.length);
    }
    return got;
  }

  async check(): Promise<void> {}

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stream.destroy();
  }

  async #read(signal: AbortSignal): Promise<boolean> {
    try {
      const { done, value } = await abortable(this.#chunks.next(), signal);
      if (done === true) return false;
      this.#rest = typeof value === 'string' ? new TextEncoder().encode(value) : new Uint8Array(value);
      return true;
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof MillraceError ? error : fileError('read the pipe', error);
    }
  }
}
