// The ends of a stream as web streams. Chunks are copies, or are read into a buffer of the reader
// (BYOB).

import { ReadableStream, WritableStream } from 'node:stream/web';
import type { BlockReader } from './block-reader.ts';
import type { BlockWriter } from './block-writer.ts';
import { ChunkReader, ChunkWriter } from './node-streams.ts';

/** Closing the WritableStream finishes the stream; aborting it fails the stream. */
export function webWritable(blocks: BlockWriter, close: () => Promise<void>): WritableStream<Uint8Array> {
  const writer = new ChunkWriter(blocks);
  return new WritableStream<Uint8Array>({
    write: (chunk) => writer.write(chunk),
    close: () => writer.finish(),
    abort: () => close(),
  });
}

/** A byte stream, so readers may bring their own buffer. Cancelling it fails the stream. */
export function webReadable(blocks: BlockReader, close: () => Promise<void>): ReadableStream<Uint8Array> {
  const reader = new ChunkReader(blocks);
  return new ReadableStream({
    type: 'bytes',
    async pull(controller) {
      const request = controller.byobRequest;
      const view = request?.view;
      const part = await reader.next(view?.byteLength);
      if (part === undefined) {
        controller.close();
        request?.respond(0);
      } else if (request && view) {
        new Uint8Array(view.buffer, view.byteOffset, part.length).set(part);
        request.respond(part.length);
      } else {
        controller.enqueue(part.slice());
      }
    },
    cancel: () => close(),
  });
}
