// Cuts a stream of bytes into lines, within limits.

import { ProtocolError } from '../errors.ts';
import type { LineBudget } from './line-budget.ts';

/** Without the newline. */
export const MAX_LINE_BYTES = 64 * 1024;

const NEWLINE = 10;
const nothing: Buffer = Buffer.alloc(0);

export class LineSplitter {
  readonly #maxBytes: number;
  readonly #budget: LineBudget | undefined;
  #rest = nothing;
  /** So many bytes of the rest have no newline. */
  #searched = 0;

  /** With a budget, each line is paid for. */
  constructor(maxBytes = MAX_LINE_BYTES, budget?: LineBudget) {
    this.#maxBytes = maxBytes;
    this.#budget = budget;
  }

  /** Bytes that have come. They are used up when `next` has nothing more. */
  push(bytes: Buffer): void {
    this.#rest = this.#rest.length === 0 ? bytes : Buffer.concat([this.#rest, bytes]);
  }

  /**
   * Undefined: more bytes have to come first. Throws a ProtocolError when a line is too long, or
   * there are too many.
   */
  next(): string | undefined {
    const end = this.#rest.indexOf(NEWLINE, this.#searched);
    if ((end < 0 ? this.#rest.length : end) > this.#maxBytes) {
      throw new ProtocolError(`a line of more than ${this.#maxBytes} bytes`);
    }
    if (end < 0) {
      this.#searched = this.#rest.length;
      return undefined;
    }
    this.#budget?.spend();
    const line = this.#rest.toString('utf8', 0, end);
    this.#rest = this.#rest.subarray(end + 1);
    this.#searched = 0;
    return line;
  }

  /** Gives away what came after the last line. */
  takeRest(): Buffer {
    const rest = this.#rest;
    this.#rest = nothing;
    this.#searched = 0;
    return rest;
  }
}
