// The movers of plain TCP: bytes go between the blocks of the pool and the socket, as many in one
// call as it takes.

import { SystemError } from '../../../errors.ts';
import { AGAIN, type Poller, pollEvents, type Socket } from '../../../native/index.ts';
import type { BlockQueue } from '../../stream/index.ts';
import { StreamFailure } from '../stream-failure.ts';
import { type Mover, type ReceiverMover, WIRE_TOKEN } from './mover.ts';

/** System calls of one turn. */
const CALLS_A_TURN = 64;
/** Bytes of one system call, so that blocks reach the program in between. */
const MAX_CALL_BYTES = 1024 * 1024;

abstract class TcpMover implements Mover {
  protected readonly queue: BlockQueue;
  protected readonly socket: Socket;
  /** Bytes of the stream that have gone through the socket. */
  protected movedBytes = 0;
  #handedOver = 0;
  readonly #events: number;

  /** Takes over the socket. */
  constructor(queue: BlockQueue, socket: Socket, events: number) {
    this.queue = queue;
    this.socket = socket;
    this.#events = events;
  }

  /** How far `movedBytes` may grow, by the counters of the queue. */
  protected abstract readonly limitBytes: number;

  /** One system call: returns the number of bytes moved, or AGAIN. */
  protected abstract move(offset: number, bytes: number): number;

  /** Commits or releases all blocks below `end`. */
  protected abstract handOver(end: number): void;

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
      if (blocks > this.#handedOver) this.handOver(blocks);
      this.#handedOver = blocks;
    }
    return true;
  }

  /** Whole blocks that have gone through the socket. */
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
    // `committed` is loaded before the size: a last block that is not full is committed after the
    // size was stored.
    const { committed, blockBytes } = this.queue;
    return Math.min(committed * blockBytes, this.queue.sizeBytes ?? Number.MAX_SAFE_INTEGER);
  }

  /** Includes a last block that is not full. */
  protected override get movedBlocks(): number {
    const { sizeBytes, blockBytes } = this.queue;
    return sizeBytes === this.movedBytes ? Math.ceil(sizeBytes / blockBytes) : super.movedBlocks;
  }

  protected override move(offset: number, bytes: number): number {
    return this.socket.send(this.queue.pool, offset, bytes);
  }

  protected override handOver(end: number): void {
    this.queue.release(end);
  }
}

export class TcpReceiver extends TcpMover implements ReceiverMover {
  constructor(queue: BlockQueue, socket: Socket) {
    super(queue, socket, pollEvents.in);
  }

  protected override get limitBytes(): number {
    const { released, poolBlocks, blockBytes } = this.queue;
    return (released + poolBlocks) * blockBytes;
  }

  protected override move(offset: number, bytes: number): number {
    const got = this.socket.receive(this.queue.pool, offset, bytes);
    // A sender keeps the connection open until the receiver has told that everything is read.
    if (got === 0) throw new StreamFailure('wire', 'the data connection ended before the stream');
    return got;
  }

  /** A last block that is not full is committed by `finish`, with the size. */
  protected override handOver(end: number): void {
    this.queue.commit(end);
  }

  isComplete(sizeBytes: number): boolean {
    if (this.movedBytes <= sizeBytes) return this.movedBytes === sizeBytes;
    throw new StreamFailure('protocol', `the sender sent ${this.movedBytes} bytes, and the stream has ${sizeBytes}`);
  }
}

/** The control connection shows whether the peer has died too. */
export function brokenConnection(error: unknown): StreamFailure {
  if (error instanceof StreamFailure) return error;
  const code = error instanceof SystemError ? error.code : String(error);
  return new StreamFailure('wire', `the data connection broke: ${code}`, { cause: error });
}
