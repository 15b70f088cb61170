// The part of a file that has arrived: appended to under another name, and renamed when it is whole
// and on the disk.

import { constants } from 'node:fs';
import { type FileHandle, link, lstat, open, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { UsageError } from '../../errors.ts';
import { currentOwner, livenessOf } from '../../system/index.ts';
import { fileError } from './file-transfer-error.ts';
import { decodeNote, encodeNote, MAX_NOTE_BYTES, type PartNote } from './part-note.ts';
import { type FileOffer, isSameFile } from './protocol.ts';

const PART_SUFFIX = '.millrace-part';
const NOTE_SUFFIX = '.millrace-note';

const { O_CREAT, O_NOFOLLOW, O_RDWR } = constants;

export interface PartOptions {
  readonly target: string;
  readonly offer: FileOffer;
  /** Replace a file that has the name already. */
  readonly force: boolean;
}

/** Throws when there is something under that name that must not be replaced. */
export async function checkTarget(target: string, force: boolean): Promise<void> {
  const stat = await lstat(target).catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw fileError(`look at ${target}`, error);
  });
  if (stat === undefined) return;
  if (stat.isDirectory()) throw new UsageError(`write ${target}: it is a folder`);
  if (!force) throw new UsageError(`write ${target}: it exists (--force replaces it)`);
}

export class Part implements AsyncDisposable {
  readonly path: string;
  /** Bytes from an earlier attempt at the same file. */
  readonly haveBytes: number;
  /** Why the bytes that were there cannot be used; undefined when there were none, or they can. */
  readonly staleness: string | undefined;
  readonly #target: string;
  readonly #force: boolean;
  readonly #handle: FileHandle;

  /** A part that cannot be continued is emptied. */
  static async open({ target, offer, force }: PartOptions): Promise<Part> {
    await checkTarget(target, force);
    const path = `${target}${PART_SUFFIX}`;
    const known = await readNote(noteOf(target));
    if (known !== undefined && isWriting(known)) {
      throw new UsageError(`write ${target}: process ${known.writer.pid} is receiving it already`);
    }
    await using undo = new AsyncDisposableStack();
    try {
      // A part without a note was not left by a receiver: its bytes are not trusted.
      const isSame = known !== undefined && isSameFile(known.offer, offer) && offer.modifiedNs !== undefined;
      await writeNote(noteOf(target), { offer, writer: currentOwner() });
      const handle = await open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0o666);
      undo.defer(() => handle.close());
      const { size } = await handle.stat();
      const isUsable = isSame && size <= (offer.sizeBytes ?? 0);
      if (!isUsable) await handle.truncate(0);
      undo.move();
      const staleness = isUsable || size === 0 ? undefined : 'the file at the sender is another one by now';
      return new Part({ target, force, path, handle, haveBytes: isUsable ? size : 0, staleness });
    } catch (error) {
      throw fileError(`write ${path}`, error);
    }
  }

  private constructor(parts: {
    readonly target: string;
    readonly force: boolean;
    readonly path: string;
    readonly handle: FileHandle;
    readonly haveBytes: number;
    readonly staleness: string | undefined;
  }) {
    this.path = parts.path;
    this.haveBytes = parts.haveBytes;
    this.staleness = parts.staleness;
    this.#target = parts.target;
    this.#force = parts.force;
    this.#handle = parts.handle;
  }

  async fill(into: Uint8Array, position: number): Promise<number> {
    try {
      return (await this.#handle.read(into, 0, into.length, position)).bytesRead;
    } catch (error) {
      throw fileError(`read ${this.path}`, error);
    }
  }

  async empty(): Promise<void> {
    await this.#handle.truncate(0);
  }

  /**
   * Always appended, so that the length of the part tells how much has arrived, whatever happens.
   */
  async write(bytes: Uint8Array, position: number): Promise<void> {
    try {
      for (let done = 0; done < bytes.length; ) {
        done += (await this.#handle.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
      }
    } catch (error) {
      throw fileError(`write ${this.path}`, error);
    }
  }

  /** Syncs it to the disk, and gives it its final name in one step. */
  async publish(): Promise<void> {
    try {
      await this.#handle.sync();
      if (this.#force) await rename(this.path, this.#target);
      else await this.#nameIt();
      await rm(noteOf(this.#target), { force: true });
      await syncFolder(dirname(this.#target));
    } catch (error) {
      throw fileError(`give ${this.path} its name ${this.#target}`, error);
    }
  }

  /** Removes it, because its bytes cannot be used. */
  async discard(): Promise<void> {
    await rm(this.path, { force: true });
    await rm(noteOf(this.#target), { force: true });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#handle.close();
  }

  /** A rename would replace a file that has come meanwhile; a link does not. */
  async #nameIt(): Promise<void> {
    try {
      await link(this.path, this.#target);
    } catch (error) {
      const { code } = error as NodeJS.ErrnoException;
      if (code === 'EEXIST') await checkTarget(this.#target, false);
      // The file system has no hard links.
      if (code !== 'EPERM' && code !== 'ENOTSUP' && code !== 'EOPNOTSUPP' && code !== 'ENOSYS') throw error;
      await checkTarget(this.#target, false);
      await rename(this.path, this.#target);
      return;
    }
    await rm(this.path);
  }
}

function noteOf(target: string): string {
  return `${target}${NOTE_SUFFIX}`;
}

function isWriting({ writer }: PartNote): boolean {
  return writer.pid !== process.pid && livenessOf(writer) === 'alive';
}

async function readNote(path: string): Promise<PartNote | undefined> {
  try {
    const stat = await lstat(path);
    return stat.isFile() && stat.size <= MAX_NOTE_BYTES ? decodeNote(await readFile(path, 'utf8')) : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw fileError(`read ${path}`, error);
  }
}

/** Written aside and renamed, so that a note is there whole or not at all. */
async function writeNote(path: string, note: PartNote): Promise<void> {
  const aside = `${path}.${process.pid}`;
  try {
    await writeFile(aside, encodeNote(note), { flag: 'wx' });
    await rename(aside, path);
  } catch (error) {
    await rm(aside, { force: true });
    throw error;
  }
}

async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } catch (error) {
    // Some file systems cannot sync a folder, and need not.
    if (!/^(EINVAL|ENOTSUP)$/.test((error as NodeJS.ErrnoException).code ?? '')) throw error;
  } finally {
    await handle.close();
  }
}
