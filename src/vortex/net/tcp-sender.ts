// The sending side on plain TCP: bytes go from the pool's blocks to the socket, as many as it takes in one call.

import { SystemError } from '../../errors.ts';
import { AGAIN, type Poller, pollEvents, type Socket } from '../../native/index.ts';
import type { BlockQueue } from '../block-queue.ts';
import { WIRE_TOKEN } from './data-loop.ts';
import type { Mover } from './mover.ts';
import { StreamFailure } from './stream-failure.ts';

/** Calls in a row before somebody else has a turn. */
const CALLS_A_TURN = 64;
/** Bytes in one call: the producer gets blocks back in between. */
const MAX_SEND_BYTES = 1024 * 1024;

export class TcpSender implements Mover {
  readonly #queue: BlockQueue;
  readonly #socket: Socket;
  /** Bytes of the stream that the kernel has taken. */
  #sentBytes = 0;

  /** Takes the socket over. */
  constructor(queue: BlockQueue, socket: Socket) {
    this.#queue = queue;
    this.#socket = socket;
  }

  watch(poller: Poller): void {
    poller.add(this.#socket.fd, pollEvents.out | pollEvents.edge, WIRE_TOKEN);
  }

  pump(): boolean {
    const queue = this.#queue;
    const { blockBytes, poolBlocks, pool } = queue;
    const poolBytes = blockBytes * poolBlocks;
    for (let call = 0; call < CALLS_A_TURN; call++) {
      // In this order: a last block that is not full was committed after its size was known.
      const committed = queue.committed;
      const sizeBytes = queue.sizeBytes ?? Number.MAX_SAFE_INTEGER;
      const available = Math.min(committed * blockBytes, sizeBytes) - this.#sentBytes;
      if (available <= 0) return false;
      const offset = this.#sentBytes % poolBytes;
      const sent = this.#send(pool, offset, Math.min(available, poolBytes - offset, MAX_SEND_BYTES));
      if (sent === AGAIN) return false;
      const blockBefore = Math.floor(this.#sentBytes / blockBytes);
      this.#sentBytes += sent;
      const isEnd = this.#sentBytes === sizeBytes;
      const blockNow = isEnd ? Math.ceil(sizeBytes / blockBytes) : Math.floor(this.#sentBytes / blockBytes);
      if (blockNow > blockBefore) queue.release(blockNow);
    }
    return true;
  }

  #send(pool: BlockQueue['pool'], offset: number, bytes: number): number {
    try {
      return this.#socket.send(pool, offset, bytes);
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

/** The kernel doubles the number: 5 GB/s at the longest round trip that counts as near. */
const NEAR_US = 100;
const NEAR_SEND_BYTES = 256 * 1024;

/**
 * To a receiver that is near, more bytes under way give no more speed, and those that wait for long have left the processor's
 * cache when they are copied out again: 0.3 s of processor time a GB between two namespaces instead of 0.65. Farther
 * away the kernel finds the size.
 */
export function keepUnderWayFew(socket: Socket): void {
  if (socket.roundTripUs < NEAR_US) socket.setOption('sendBuffer', NEAR_SEND_BYTES);
}

/** Whether the peer has died with it is for the control connection to say. */
export function brokenConnection(error: unknown): StreamFailure {
  const code = error instanceof SystemError ? error.code : String(error);
  return new StreamFailure('wire', `the data connection broke: ${code}`, { cause: error });
}
