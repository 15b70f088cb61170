// A capture of a guest's network card in an unlinked file: nothing is left of it unless it is
// saved.

import { randomBytes } from 'node:crypto';
import { closeSync, openSync, readSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const copyBytes = 1024 * 1024;

export class Capture implements Disposable {
  #fd: number;

  constructor() {
    const path = join(tmpdir(), `millrace-capture-${randomBytes(8).toString('hex')}`);
    this.#fd = openSync(path, 'wx+', 0o600);
    rmSync(path);
  }

  /** For a child to inherit. */
  get fd(): number {
    return this.#fd;
  }

  /** The packets so far, as a pcap file. */
  save(path: string): void {
    const target = openSync(path, 'w', 0o644);
    try {
      const buffer = Buffer.alloc(copyBytes);
      for (let at = 0; ; ) {
        const count = readSync(this.#fd, buffer, 0, copyBytes, at);
        if (count === 0) return;
        writeSync(target, buffer, 0, count);
        at += count;
      }
    } finally {
      closeSync(target);
    }
  }

  close(): void {
    if (this.#fd < 0) return;
    closeSync(this.#fd);
    this.#fd = -1;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
