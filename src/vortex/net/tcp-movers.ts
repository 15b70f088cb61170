// The two sides of a stream on plain TCP: bytes go between the pool's blocks and the socket, as many as it takes in one call.

import { SystemError } from '../../errors.ts';
import { AGAIN, type Poller, pollEvents, type Socket } from '../../native/index.ts';
import type { BlockQueue } from '../stream/index.ts';
import { WIRE_TOKEN } from './data-loop.ts';
import type { Mover, ReceiveMover } from './mover.ts';
import { StreamFailure } from './stream-failure.ts';

/** Calls in a row before somebody else has a turn. */
const CALLS_A_TURN = 64;
/** Bytes in one call: the program gets blocks in between. */
const MAX_CALL_BYTES = 1024 * 1024;

abstract class TcpMover implements Mover {
  protected readonly queue: BlockQueue;
  protected readonly socket: Socket;
  /** Bytes of the stream that have gone through the socket. */
  protected movedBytes = 0;
  #passed = 0;
  readonly #events: number;

  /** Takes the socket over. */
  constructor(queue: BlockQueue, socket: Socket, events: number) {
    this.queue = queue;
    this.socket = socket;
    this.#events = events;
  }

  /** Where `movedBytes` can be by now, as far as the queue goes. */
  protected abstract readonly limitBytes: number;

  /** One call: bytes that were moved, or AGAIN. */
  protected abstract move(offset: number, bytes: number): number;

  /** The other side of the queue may have so many. */
  protected abstract pass(blocks: number): void;

  watch(poller: Poller): void {
    poller.add(this.socket.fd, this.#events | pollEvents.edge, WIRE_TOKEN);
  }

  pump(): boolean {
    const { blockBytes, poolBlocks } = this.queue;
    const poolBytes = blockBytes * poolBlocks;
    for (let call = 0; call < CALLS_A_TURN; call++) {
      const left = this.limitBytes - this.movedBytes;
      if (left <= 0) return false;
      const offset = this.movedBytes % poolBytes;
      const moved = this.#move(offset, Math.min(left, poolBytes - offset, MAX_CALL_BYTES));
      if (moved === AGAIN) return false;
      this.movedBytes += moved;
      const blocks = this.movedBlocks;
      if (blocks > this.#passed) this.pass(blocks);
      this.#passed = blocks;
    }
    return true;
  }

  /** Blocks that have gone through as a whole. */
  protected get movedBlocks(): number {
    return Math.floor(this.movedBytes / this.queue.blockBytes);
  }

  #move(offset: number, bytes: number): number {
    try {
      return this.move(offset, bytes);
    } catch (error) {
      throw brokenConnection(error);
    }
  }

  arm(): boolean {
    return true;
  }

  [Symbol.dispose](): void {
    this.socket.close();
  }
}

export class TcpSender extends TcpMover {
  constructor(queue: BlockQueue, socket: Socket) {
    super(queue, socket, pollEvents.out);
  }

  protected override get limitBytes(): number {
    // In this order: a last block that is not full was committed after its size was known.
    const { committed, blockBytes } = this.queue;
    return Math.min(committed * blockBytes, this.queue.sizeBytes ?? Number.MAX_SAFE_INTEGER);
  }

  /** The last one need not be full. */
  protected override get movedBlocks(): number {
    const { sizeBytes, blockBytes } = this.queue;
    return sizeBytes === this.movedBytes ? Math.ceil(sizeBytes / blockBytes) : super.movedBlocks;
  }

  protected override move(offset: number, bytes: number): number {
    return this.socket.send(this.queue.pool, offset, bytes);
  }

  protected override pass(blocks: number): void {
    this.queue.release(blocks);
  }
}

export class TcpReceiver extends TcpMover implements ReceiveMover {
  constructor(queue: BlockQueue, socket: Socket) {
    super(queue, socket, pollEvents.in);
  }

  protected override get limitBytes(): number {
    const { released, poolBlocks, blockBytes } = this.queue;
    return (released + poolBlocks) * blockBytes;
  }

  protected override move(offset: number, bytes: number): number {
    const got = this.socket.receive(this.queue.pool, offset, bytes);
    // A sender keeps it open until it has heard that all is read.
    if (got === 0) throw new StreamFailure('wire', 'the data connection ended before the stream');
    return got;
  }

  /** One that is not full is committed with the size. */
  protected override pass(blocks: number): void {
    this.queue.commit(blocks);
  }

  isComplete(sizeBytes: number): boolean {
    if (this.movedBytes <= sizeBytes) return this.movedBytes === sizeBytes;
    throw new StreamFailure('nonsense', `the sender sent ${this.movedBytes} bytes of a stream of ${sizeBytes}`);
  }
}

/** Whether the peer has died with it is for the control connection to say. */
export function brokenConnection(error: unknown): StreamFailure {
  if (error instanceof StreamFailure) return error;
  const code = error instanceof SystemError ? error.code : String(error);
  return new StreamFailure('wire', `the data connection broke: ${code}`, { cause: error });
}
