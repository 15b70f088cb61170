// A lane: one thread's event loop, and what its connections share.

export { BIG_BYTES, BigSegments } from './big-segments.ts';
export { BufferPool, type PooledBuffer } from './buffer-pool.ts';
export { Door, isShortage } from './door.ts';
export { Lane, type Resumable, type Watched } from './lane.ts';
export { LaneDriver } from './lane-driver.ts';
export { type Dying, LastWords } from './last-words.ts';
export { prepareLeg } from './leg-socket.ts';
export { SourcePorts } from './source-ports.ts';
