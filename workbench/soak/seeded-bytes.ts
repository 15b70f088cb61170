// A stream of bytes that follows from its seed: who knows the seed knows the byte at every offset.

export const BLOCK_BYTES = 65_536;
const WORDS = BLOCK_BYTES / 4;

/**
 * No two blocks are alike, of one stream or of two, so that lost, repeated or swapped bytes are
 * found.
 */
function fill(words: Uint32Array, seed: number, block: number): void {
  let state = (Math.imul(seed ^ 0x9e37_79b9, 0x85eb_ca6b) ^ Math.imul(block + 1, 0xc2b2_ae35)) | 1;
  for (let index = 0; index < WORDS; index++) {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    words[index] = state;
  }
}

export class SeededBytes {
  readonly #seed: number;
  readonly #words = new Uint32Array(WORDS);
  readonly #bytes = Buffer.from(this.#words.buffer);
  #block = -1;

  constructor(seed: number) {
    this.#seed = seed;
  }

  /** The bytes at an offset, at most `most`; valid until the next call. */
  at(offset: number, mostBytes: number): Buffer {
    const block = Math.floor(offset / BLOCK_BYTES);
    if (block !== this.#block) {
      fill(this.#words, this.#seed, block);
      this.#block = block;
    }
    const start = offset - block * BLOCK_BYTES;
    return this.#bytes.subarray(start, Math.min(BLOCK_BYTES, start + mostBytes));
  }

  /** The offset of the first wrong byte, or -1. */
  firstWrong(offset: number, got: Buffer): number {
    for (let done = 0; done < got.length; ) {
      const right = this.at(offset + done, got.length - done);
      const part = got.subarray(done, done + right.length);
      if (!part.equals(right)) return offset + done + part.findIndex((byte, index) => byte !== right[index]);
      done += right.length;
    }
    return -1;
  }
}
