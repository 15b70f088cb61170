// A recording in a file: written in large pieces, and given up, rather than the guest, when the
// disk is full.

import { closeSync, openSync, writeSync } from 'node:fs';
import type { RecordingSink } from './recording-writer.ts';

const PIECE_BYTES = 65_536;

export class RecordingFile implements Disposable {
  readonly #fd: number;
  #pending: string[] = [];
  #pendingLength = 0;
  #isOpen = true;

  /** Only its owner may read it: there is memory of the guest's in it. */
  constructor(path: string) {
    this.#fd = openSync(path, 'w', 0o600);
  }

  readonly sink: RecordingSink = (line) => {
    if (!this.#isOpen) return;
    this.#pending.push(line);
    this.#pendingLength += line.length;
    if (this.#pendingLength >= PIECE_BYTES) this.flush();
  };

  flush(): void {
    const bytes = Buffer.from(this.#pending.join(''));
    this.#pending = [];
    this.#pendingLength = 0;
    try {
      for (let at = 0; at < bytes.length; ) at += writeSync(this.#fd, bytes, at);
    } catch {
      // A reader sees that lines are missing: the last line is not whole.
      this.#isOpen = false;
    }
  }

  close(): void {
    if (this.#isOpen) this.flush();
    this.#isOpen = false;
    closeSync(this.#fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
