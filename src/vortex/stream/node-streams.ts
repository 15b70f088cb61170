// The ends of a stream as Node streams. Chunks are copies, since a Node stream cannot tell when a
// program has done with one.

import { Readable, Writable } from 'node:stream';
import type { BlockReader, ReadableBlock } from './block-reader.ts';
import type { BlockWriter, WritableBlock } from './block-writer.ts';

/** The size of a chunk, and the high-water mark; blocks are larger. */
const CHUNK_BYTES = 256 * 1024;

/** Fills blocks from chunks of any size. */
export class ChunkWriter {
  readonly #blocks: BlockWriter;
  #block: WritableBlock | undefined;
  #used = 0;

  constructor(blocks: BlockWriter) {
    this.#blocks = blocks;
  }

  async write(chunk: Uint8Array): Promise<void> {
    let taken = 0;
    while (taken < chunk.length) {
      this.#block ??= await this.#blocks.next();
      const part = chunk.subarray(taken, taken + this.#block.bytes.length - this.#used);
      this.#block.bytes.set(part, this.#used);
      this.#used += part.length;
      taken += part.length;
      if (this.#used === this.#block.bytes.length) this.#commit(this.#block);
    }
  }

  finish(): void {
    if (this.#block !== undefined) this.#commit(this.#block);
    this.#blocks.finish();
  }

  #commit(block: WritableBlock): void {
    block.commit(this.#used);
    this.#block = undefined;
    this.#used = 0;
  }
}

/** Cuts blocks into chunks. */
export class ChunkReader {
  readonly #blocks: BlockReader;
  #block: ReadableBlock | undefined;
  #taken = 0;

  constructor(blocks: BlockReader) {
    this.#blocks = blocks;
  }

  /** A part of a block in the pool, valid until the next call; undefined at the end. */
  async next(mostBytes = CHUNK_BYTES): Promise<Uint8Array | undefined> {
    if (this.#block !== undefined && this.#taken === this.#block.bytes.length) {
      this.#block.release();
      this.#block = undefined;
      this.#taken = 0;
    }
    this.#block ??= await this.#blocks.next();
    if (this.#block === undefined) return undefined;
    const part = this.#block.bytes.subarray(this.#taken, this.#taken + mostBytes);
    this.#taken += part.length;
    return part;
  }
}

/** Ending the Writable finishes the stream; destroying it before that fails the stream. */
export function nodeWritable(blocks: BlockWriter, close: () => Promise<void>): Writable {
  const writer = new ChunkWriter(blocks);
  return new Writable({
    highWaterMark: CHUNK_BYTES,
    write(chunk: Uint8Array, _encoding, callback) {
      writer.write(chunk).then(() => callback(), callback);
    },
    final(callback) {
      try {
        writer.finish();
        callback();
      } catch (error) {
        callback(error as Error);
      }
    },
    destroy(error, callback) {
      if (blocks.isFinished) callback(error);
      else close().then(() => callback(error), callback);
    },
  });
}

/** Destroying the Readable before its end fails the stream. */
export function nodeReadable(blocks: BlockReader, close: () => Promise<void>): Readable {
  const reader = new ChunkReader(blocks);
  let isAtEnd = false;
  return new Readable({
    highWaterMark: CHUNK_BYTES,
    read() {
      reader.next().then(
        (part) => {
          isAtEnd = part === undefined;
          this.push(part === undefined ? null : Buffer.from(part));
        },
        (error: Error) => this.destroy(error),
      );
    },
    destroy(error, callback) {
      if (isAtEnd) callback(error);
      else close().then(() => callback(error), callback);
    },
  });
}
