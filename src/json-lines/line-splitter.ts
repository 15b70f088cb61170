// Cuts a stream of bytes into lines.

import { UsageError } from '../errors.ts';

/** Without the newline. */
export const MAX_LINE_BYTES = 64 * 1024;

/** Cuts a stream of bytes into lines. Throws when one gets too long. */
export class LineSplitter {
  readonly #decoder = new TextDecoder();
  #rest = '';

  *split(bytes: Uint8Array): Generator<string> {
    this.#rest += this.#decoder.decode(bytes, { stream: true });
    for (;;) {
      const end = this.#rest.indexOf('\n');
      if ((end < 0 ? this.#rest.length : end) > MAX_LINE_BYTES) {
        throw new UsageError(`a line of more than ${MAX_LINE_BYTES} bytes`);
      }
      if (end < 0) return;
      const line = this.#rest.slice(0, end);
      this.#rest = this.#rest.slice(end + 1);
      yield line;
    }
  }
}
