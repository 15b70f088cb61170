// A stream as memory: the block queue, the window over it, and the forms in which programs use it.

export { BlockQueue, type BlockQueueParts, MAX_BLOCK_BYTES, MIN_BLOCK_BYTES } from './block-queue.ts';
export type { BlockReader, ReadableBlock } from './block-reader.ts';
export type { BlockWriter, WritableBlock } from './block-writer.ts';
export type { Connection } from './connection.ts';
export { Consumer } from './consumer.ts';
export { errorOfFailure, failureCode, type Role, VortexError } from './failure.ts';
export { type OpenOptions, openLocal, type ServeOptions, serveLocal } from './local-processes.ts';
export {
  createLocalStream,
  type LocalHandle,
  type LocalStream,
  openLocalConsumer,
  openLocalProducer,
} from './local-threads.ts';
export { checkOptions, createStreamQueue, freeHugePages, type StreamOptions } from './options.ts';
export { Producer } from './producer.ts';
export type { ArrayType } from './window.ts';
