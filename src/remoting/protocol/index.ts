// The protocol between a guest and the backend: calls, rings, and what a transport must have.

export { readError, writeError } from './call-errors.ts';
export {
  areaWord,
  armings,
  CALL_AREA_BYTES,
  type CallName,
  calls,
  completionRing,
  eventKinds,
  PROTOCOL_MAGIC,
  PROTOCOL_VERSION,
  replyStatuses,
  requestRing,
} from './call-protocol.ts';
export { readPath, writePath } from './path-words.ts';
export { readQpAttributes, stateOf, stateWord, typeOf, typeWord, writeQpAttributes } from './qp-words.ts';
export { readRange, writeRange } from './range-words.ts';
export {
  type CompletionRingShape,
  completionRingShape,
  type QpShape,
  type QpSizes,
  qpShape,
  type RequestRingShape,
  receiveRingShape,
} from './ring-layout.ts';
export type { AllocateSharedOptions, GuestTransport, HostMemory, HostTransport, SharedRange } from './transport.ts';
export { WordReader, WordWriter } from './words.ts';
