// Memory that is made for others to map: a memfd that is not mapped here.

import { fstatSync, writeSync } from 'node:fs';
import { UsageError } from '../errors.ts';
import { addon } from './addon.ts';
import { Fd } from './fd.ts';
import { check } from './result.ts';

// <linux/fcntl.h>: F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE
const SIZE_SEALS = 0x1 | 0x2 | 0x4;
const FUTURE_WRITE = 0x10;

const seals = {
  /** It keeps its size, and nobody can seal more. */
  size: SIZE_SEALS,
  /** As `size`, and whoever maps it from now on can only read it. Who has mapped it writes on. */
  writes: SIZE_SEALS | FUTURE_WRITE,
} as const;

export class MemoryFile extends Fd {
  /** Of zeroes. `name` is seen in /proc/PID/maps. */
  static create(sizeBytes: number, name: string): MemoryFile {
    if (!Number.isSafeInteger(sizeBytes) || sizeBytes <= 0) {
      throw new UsageError(`memory of ${sizeBytes} bytes: the size must be a positive whole number`);
    }
    return new MemoryFile(check(addon.memfdCreate(name, sizeBytes, 0), 'memfd_create', `${sizeBytes} bytes`));
  }

  /** For good. */
  seal(what: keyof typeof seals): void {
    check(addon.addSeals(this.fd, seals[what]), 'fcntl', 'seal memory');
  }

  /** Writes bytes into it, as a file. Unlike a store to mapped memory, this can fail: it throws. */
  write(offset: number, bytes: Uint8Array): void {
    const written = writeSync(this.fd, bytes, 0, bytes.byteLength, offset);
    if (written !== bytes.byteLength)
      throw new UsageError(`write ${bytes.byteLength} bytes at ${offset}: past the end`);
  }

  /** What its pages have, whoever touched them. */
  get residentBytes(): number {
    return fstatSync(this.fd).blocks * 512;
  }

  /** Gives the pages of a range back to the system: it reads as zero from now on. */
  discard(offset: number, sizeBytes: number): void {
    check(addon.punchHole(this.fd, offset, sizeBytes), 'fallocate', `discard ${sizeBytes} bytes at ${offset}`);
  }
}
