// Arguments and results of calls as 32-bit words: numbers, 64-bit numbers in halves, text with its
// length before it.

import { MillraceError } from '../../errors.ts';
import { MAX_CALL_WORDS } from './call-protocol.ts';

const TWO_32 = 4_294_967_296;
/** Stands for an optional number that is not there. No optional field takes this value. */
const ABSENT = 0xffff_ffff;

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Collects words in memory of its own; `copyTo` then puts them where the other side reads them. */
export class WordWriter {
  readonly #words = new Uint32Array(MAX_CALL_WORDS);
  #count = 0;

  get count(): number {
    return this.#count;
  }

  clear(): this {
    this.#count = 0;
    return this;
  }

  u32(value: number): this {
    this.#room(1);
    this.#words[this.#count++] = value;
    return this;
  }

  flag(value: boolean): this {
    return this.u32(value ? 1 : 0);
  }

  /** A whole number from 0 to 2^53-1. */
  u64(value: number): this {
    return this.u32(value % TWO_32).u32(Math.floor(value / TWO_32));
  }

  optional(value: number | undefined): this {
    return this.u32(value ?? ABSENT);
  }

  /** Cut where it is longer than `maxBytes`. */
  text(value: string, maxBytes = 4096): this {
    const bytes = encoder.encode(value).subarray(0, maxBytes);
    const words = Math.ceil(bytes.length / 4);
    this.#room(words + 1);
    this.#words[this.#count] = bytes.length;
    this.#words[this.#count + words] = 0;
    new Uint8Array(this.#words.buffer, (this.#count + 1) * 4, bytes.length).set(bytes);
    this.#count += words + 1;
    return this;
  }

  copyTo(words: Uint32Array, at: number): void {
    for (let word = 0; word < this.#count; word++) words[at + word] = this.#words[word];
  }

  #room(words: number): void {
    if (this.#count + words <= MAX_CALL_WORDS) return;
    throw new MillraceError('MILLRACE_ERR_FAILED', 'a call of remoting is longer than the call area');
  }
}

/**
 * Reads words from a private copy, which the other side cannot change. Reading beyond the end
 * throws.
 */
export class WordReader {
  readonly #words = new Uint32Array(MAX_CALL_WORDS);
  #count = 0;
  #at = 0;

  /** Takes a copy. A count that is too large is a protocol error. */
  copyFrom(words: Uint32Array, at: number, count: number): this {
    if (count > MAX_CALL_WORDS) throw protocolError(`${count} words in a call`);
    for (let word = 0; word < count; word++) this.#words[word] = words[at + word];
    this.#count = count;
    this.#at = 0;
    return this;
  }

  u32(): number {
    if (this.#at >= this.#count) throw protocolError('a call with too few words');
    return this.#words[this.#at++];
  }

  flag(): boolean {
    return this.u32() !== 0;
  }

  u64(): number {
    const low = this.u32();
    const value = this.u32() * TWO_32 + low;
    if (!Number.isSafeInteger(value)) throw protocolError('a number of more than 53 bits');
    return value;
  }

  optional(): number | undefined {
    const value = this.u32();
    return value === ABSENT ? undefined : value;
  }

  text(): string {
    const bytes = this.u32();
    const words = Math.ceil(bytes / 4);
    if (words > this.#count - this.#at) throw protocolError('text that goes beyond its call');
    const text = decoder.decode(new Uint8Array(this.#words.buffer, this.#at * 4, bytes));
    this.#at += words;
    return text;
  }
}

function protocolError(what: string): MillraceError {
  return new MillraceError('MILLRACE_ERR_PROTOCOL', `remoting: ${what}`);
}
