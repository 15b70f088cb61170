// Vortex: streams that are plain memory at both ends.

export { BlockQueue, type BlockQueueOptions, type BlockQueueParts } from './block-queue.ts';
export type { BlockReader, ReadableBlock } from './block-reader.ts';
export type { BlockWriter, WritableBlock } from './block-writer.ts';
export type { Carrier } from './carrier.ts';
export { Consumer } from './consumer.ts';
export { errorOfFailure, failureCode, systemFailure, VortexError } from './failure.ts';
export { createLocalStream, type LocalHandle, LocalStream, openLocalConsumer, openLocalProducer } from './local.ts';
export { type OpenOptions, openLocal, type ServeOptions, serveLocal } from './local-socket.ts';
export {
  type ListenAddress,
  type NetworkOptions,
  openReceiver,
  openSender,
  type Receiver,
  type ReceiverOptions,
  type Sender,
  type SenderOptions,
  type Strategy,
  type StreamTls,
  strategies,
} from './net/index.ts';
export { checkOptions, createStreamQueue, defaultOptions, freeHugePages, type StreamOptions } from './options.ts';
export { type EndOptions, Producer } from './producer.ts';
export type { ArrayType } from './window.ts';
