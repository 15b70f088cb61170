// A stream between two processes of one host: the queue's descriptors go over a unix socket, which
// then is the lifeline.

import { chmodSync, linkSync, rmSync } from 'node:fs';
import { UsageError } from '../../errors.ts';
import { type Fd, FdWatch, Socket } from '../../native/index.ts';
import { BlockQueue } from './block-queue.ts';
import { lifelineConnection } from './connection.ts';
import { Consumer } from './consumer.ts';
import { VortexError } from './failure.ts';
import { createLocalQueue } from './local-threads.ts';
import type { StreamOptions } from './options.ts';
import { Producer } from './producer.ts';

const HELLO = 'millrace vortex 1';
const HELLO_BYTES = 64;
/** Pool, ledger, and the two eventfds. */
const PARTS = 4;

export interface ServeOptions extends StreamOptions {
  /** Undefined: the producer tells it at `finish`. */
  readonly sizeBytes?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface OpenOptions extends StreamOptions {
  readonly signal?: AbortSignal | undefined;
}

/**
 * Listens at `path` for one consumer. Only the same user may connect (mode 0600); the path is
 * removed once it has.
 */
export async function serveLocal(path: string, options: ServeOptions = {}): Promise<Producer> {
  using undo = new DisposableStack();
  const queue = undo.use(createLocalQueue(options.sizeBytes, options));
  const socket = undo.use(await acceptOne(path, options.signal));
  const { pool, ledger, readable, writable } = queue.parts;
  socket.sendFds(new TextEncoder().encode(HELLO), [pool, ledger, readable, writable]);
  const producer = new Producer(queue, options, lifelineConnection(socket));
  undo.move();
  return producer;
}

/** The other end of `serveLocal`. Block size and pool are the server's. */
export async function openLocal(path: string, options: OpenOptions = {}): Promise<Consumer> {
  using undo = new DisposableStack();
  const socket = undo.use(Socket.messages());
  socket.connect({ family: 'unix', path });
  const queue = undo.use(await receiveQueue(path, socket, options.signal));
  const consumer = new Consumer(queue, options, lifelineConnection(socket));
  undo.move();
  return consumer;
}

/**
 * The socket is linked to its path once it listens, so that a connect there never fails; an
 * existing file is not replaced.
 */
async function acceptOne(path: string, signal: AbortSignal | undefined): Promise<Socket> {
  using listener = Socket.messages();
  using undo = new DisposableStack();
  const aside = `${path}.${process.pid}`;
  listener.bind({ family: 'unix', path: aside });
  undo.defer(() => rmSync(aside, { force: true }));
  chmodSync(aside, 0o600);
  listener.listen(1);
  linkSync(aside, path);
  undo.defer(() => rmSync(path, { force: true }));
  for (;;) {
    const socket = listener.accept();
    if (socket !== undefined) return socket;
    await untilReadable(listener, signal);
  }
}

async function receiveQueue(path: string, socket: Socket, signal: AbortSignal | undefined): Promise<BlockQueue> {
  const bytes = new Uint8Array(HELLO_BYTES);
  for (;;) {
    const message = socket.receiveFds(bytes);
    if (message === undefined) {
      await untilReadable(socket, signal);
      continue;
    }
    using received = new DisposableStack();
    for (const fd of message.fds) received.use(fd);
    const text = new TextDecoder().decode(bytes.subarray(0, message.bytes));
    if (message.bytes === 0) {
      throw new VortexError('MILLRACE_ERR_VORTEX_PEER_DIED', `open ${path}: the producer left before the stream began`);
    }
    if (text !== HELLO || message.fds.length !== PARTS) {
      throw new UsageError(
        `open ${path}: the process that listens there does not serve a stream of this version (${HELLO})`,
      );
    }
    const [pool, ledger, readable, writable] = message.fds.map(({ fd }) => fd);
    return BlockQueue.open({ pool, ledger, readable, writable });
  }
}

async function untilReadable(fd: Fd, signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const onAbort = (): void => reject(signal?.reason);
  signal?.addEventListener('abort', onAbort);
  const watch = FdWatch.start(fd.fd, resolve);
  watch.hold(true);
  try {
    await promise;
  } finally {
    watch.close();
    signal?.removeEventListener('abort', onAbort);
  }
}
