// The receiving side on plain TCP: bytes go from the socket straight to their place in the pool's blocks.

import { AGAIN, type Poller, pollEvents, type Socket } from '../../native/index.ts';
import type { BlockQueue } from '../block-queue.ts';
import { WIRE_TOKEN } from './data-loop.ts';
import type { ReceiveMover } from './mover.ts';
import { StreamFailure } from './stream-failure.ts';
import { brokenConnection } from './tcp-sender.ts';

const CALLS_A_TURN = 64;
/** Bytes in one call: the consumer gets blocks in between. */
const MAX_RECEIVE_BYTES = 1024 * 1024;

export class TcpReceiver implements ReceiveMover {
  readonly #queue: BlockQueue;
  readonly #socket: Socket;
  #receivedBytes = 0;

  /** Takes the socket over. */
  constructor(queue: BlockQueue, socket: Socket) {
    this.#queue = queue;
    this.#socket = socket;
  }

  watch(poller: Poller): void {
    poller.add(this.#socket.fd, pollEvents.in | pollEvents.edge, WIRE_TOKEN);
  }

  pump(): boolean {
    const queue = this.#queue;
    const { blockBytes, poolBlocks, pool } = queue;
    const poolBytes = blockBytes * poolBlocks;
    for (let call = 0; call < CALLS_A_TURN; call++) {
      const room = (queue.released + poolBlocks) * blockBytes - this.#receivedBytes;
      if (room <= 0) return false;
      const offset = this.#receivedBytes % poolBytes;
      const got = this.#receive(pool, offset, Math.min(room, poolBytes - offset, MAX_RECEIVE_BYTES));
      if (got === AGAIN) return false;
      // A sender keeps it open until it has heard that all is read.
      if (got === 0) throw new StreamFailure('wire', 'the data connection ended before the stream');
      const blockBefore = Math.floor(this.#receivedBytes / blockBytes);
      this.#receivedBytes += got;
      const blockNow = Math.floor(this.#receivedBytes / blockBytes);
      if (blockNow > blockBefore) queue.commit(blockNow);
    }
    return true;
  }

  isComplete(sizeBytes: number): boolean {
    if (this.#receivedBytes > sizeBytes) {
      throw new StreamFailure('nonsense', `the sender sent ${this.#receivedBytes} bytes of a stream of ${sizeBytes}`);
    }
    return this.#receivedBytes === sizeBytes;
  }

  #receive(pool: BlockQueue['pool'], offset: number, bytes: number): number {
    try {
      return this.#socket.receive(pool, offset, bytes);
    } catch (error) {
      throw brokenConnection(error);
    }
  }

  arm(): boolean {
    return true;
  }

  [Symbol.dispose](): void {
    this.#socket.close();
  }
}
