// A stream's ends as web streams. Chunks are copies, or go straight into the reader's own buffer.

import { ReadableStream, WritableStream } from 'node:stream/web';
import type { BlockReader } from './block-reader.ts';
import type { BlockWriter } from './block-writer.ts';
import { ChunkFiller, ChunkTaker } from './node-streams.ts';

/** Closing it finishes the stream; aborting it fails the stream. */
export function webWritable(blocks: BlockWriter, close: () => Promise<void>): WritableStream<Uint8Array> {
  const filler = new ChunkFiller(blocks);
  return new WritableStream<Uint8Array>({
    write: (chunk) => filler.write(chunk),
    close: () => filler.finish(),
    abort: () => close(),
  });
}

/** A byte stream: readers may bring their own buffer. Cancelling it fails the stream. */
export function webReadable(blocks: BlockReader, close: () => Promise<void>): ReadableStream<Uint8Array> {
  const taker = new ChunkTaker(blocks);
  return new ReadableStream({
    type: 'bytes',
    async pull(controller) {
      const request = controller.byobRequest;
      const view = request?.view;
      const part = await taker.next(view?.byteLength);
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
