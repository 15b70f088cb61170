// A stream as memory: the block queue, the window over it, and the forms in which programs use it.

export {
  BlockQueue,
  type BlockQueueOptions,
  type BlockQueueParts,
  MAX_BLOCK_BYTES,
  MIN_BLOCK_BYTES,
} from './block-queue.ts';
export { BlockReader, type ReadableBlock } from './block-reader.ts';
export { BlockWriter, type WritableBlock } from './block-writer.ts';
export type { Carrier } from './carrier.ts';
export { Consumer } from './consumer.ts';
export { errorOfFailure, failureCode, type Role, systemFailure, VortexError } from './failure.ts';
export { createLocalStream, type LocalHandle, LocalStream, openLocalConsumer, openLocalProducer } from './local.ts';
export { type OpenOptions, openLocal, type ServeOptions, serveLocal } from './local-socket.ts';
export { checkOptions, createStreamQueue, defaultOptions, freeHugePages, type StreamOptions } from './options.ts';
export { type EndOptions, Producer } from './producer.ts';
export type { ArrayType } from './window.ts';
