// One thread's event loop, and what its connections share.

export { Acceptor } from './acceptor.ts';
export { BufferPool, type PooledBuffer } from './buffer-pool.ts';
export { EventLoop, type Resumable, type Watched } from './event-loop.ts';
export { prepareLeg } from './leg-socket.ts';
export { type Draining, ResetDrain } from './reset-drain.ts';
