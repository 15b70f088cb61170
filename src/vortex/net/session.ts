// A stream on its way, in the engine: the loop that moves blocks, the control connection, and how it all ends.

import type { BlockQueue } from '../stream/index.ts';
import type { Control } from './control.ts';
import { DataLoop } from './data-loop.ts';
import type { Mover, ReceiveMover } from './mover.ts';
import type { Message } from './protocol.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';

/** When the wire breaks, the control connection may know why: it gets so long to say. */
const LAST_WORD_MS = 500;

export interface SessionOptions {
  readonly queue: BlockQueue;
  readonly control: Control;
  readonly timeoutMs: number;
  /** Once. Without a failure: the stream has come to its end. */
  readonly onEnd: (failure: StreamFailure | undefined) => void;
}

/** Owns the mover and the control connection; the queue is the engine's. */
abstract class Session<M extends Mover> implements Disposable {
  protected readonly queue: BlockQueue;
  protected readonly control: Control;
  protected readonly mover: M;
  readonly #options: SessionOptions;
  readonly #loop: DataLoop;
  #lastWord: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor(options: SessionOptions, mover: M, queueFd: number) {
    this.#options = options;
    this.queue = options.queue;
    this.control = options.control;
    this.mover = mover;
    this.#loop = new DataLoop({
      mover,
      queueFd,
      onTurn: () => this.#onTurn(),
      onError: (error) => this.#onWireFailure(failureOf(error)),
    });
  }

  /** Blocks may have been committed before anybody looked. */
  start(): void {
    this.control.start(this.#options.timeoutMs, {
      onMessage: (message) => this.#onMessage(message),
      onFailure: (failure) => this.#fail(failure),
    });
    this.#loop.run();
  }

  /** The program has closed its end. What is finished comes to its end all the same. */
  close(reason: string): void {
    this.#loop.run();
    if (!this.isFinishing || this.queue.failure !== 0) this.#leave(reason);
  }

  [Symbol.dispose](): void {
    this.#leave('it was closed');
  }

  /** Whether only the other side has something to do. */
  protected abstract readonly isFinishing: boolean;

  /** After each turn of the loop. */
  protected abstract look(): void;

  /** False when the message makes no sense here. */
  protected abstract hear(message: Message): boolean;

  /** Everything has come to its end. */
  protected succeed(last?: Message): void {
    this.#finish(undefined, last);
  }

  #onTurn(): void {
    if (this.queue.failure === 0) this.look();
    // The program's side gave up; why is its own business.
    else this.#leave('the program there closed it, or used it wrongly');
  }

  #leave(reason: string): void {
    this.#finish(undefined, { kind: 'bye', reason });
  }

  #onMessage(message: Message): void {
    try {
      if (message.kind === 'bye') throw new StreamFailure('closed', `the peer ended the stream: ${message.reason}`);
      if (message.kind === 'cut') throw new StreamFailure('wire', `the peer says: ${message.reason}`);
      if (message.kind === 'refused') throw new StreamFailure('nonsense', `the peer refuses: ${message.reason}`);
      if (!this.hear(message)) throw new StreamFailure('nonsense', `the peer said ${message.kind}, which was not due`);
      this.#loop.run();
    } catch (error) {
      this.#fail(failureOf(error));
    }
  }

  #onWireFailure(failure: StreamFailure): void {
    if (this.#isOver) return;
    if (failure.kind === 'nonsense') {
      this.#fail(failure);
      return;
    }
    this.#loop.stop();
    this.#lastWord ??= setTimeout(() => this.#fail(failure), LAST_WORD_MS);
  }

  #fail(failure: StreamFailure): void {
    const { kind, message: reason } = failure;
    if (kind === 'nonsense') this.#finish(failure, { kind: 'refused', reason });
    else this.#finish(failure, kind === 'wire' ? { kind: 'cut', reason } : undefined);
  }

  #finish(failure: StreamFailure | undefined, last: Message | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#lastWord);
    this.#loop.stop();
    this.control.end(last);
    this.mover[Symbol.dispose]();
    this.#options.onEnd(failure);
  }
}

/** Ends when the receiver says that all is read. */
export class SenderSession extends Session<Mover> {
  #isSizeTold = false;

  constructor(options: SessionOptions, mover: Mover) {
    super(options, mover, options.queue.readable.fd);
  }

  protected override get isFinishing(): boolean {
    return this.#isSizeTold;
  }

  protected override look(): void {
    const { committed, sizeBytes, blockBytes } = this.queue;
    if (this.#isSizeTold || sizeBytes === undefined || committed * blockBytes < sizeBytes) return;
    this.#isSizeTold = true;
    this.control.send({ kind: 'size', sizeBytes });
  }

  protected override hear(message: Message): boolean {
    if (message.kind !== 'done') return false;
    if (!this.#isSizeTold) throw new StreamFailure('nonsense', 'the receiver is done before all was sent');
    this.succeed();
    return true;
  }
}

/** Ends when all has come and was read. */
export class ReceiverSession extends Session<ReceiveMover> {
  readonly #offeredBytes: number | undefined;
  #sizeBytes: number | undefined;
  #isFinished = false;

  constructor(options: SessionOptions, mover: ReceiveMover, offeredBytes: number | undefined) {
    super(options, mover, options.queue.writable.fd);
    this.#offeredBytes = offeredBytes;
  }

  /** A receiver that has read everything has ended already. */
  protected override get isFinishing(): boolean {
    return false;
  }

  protected override look(): void {
    const sizeBytes = this.#sizeBytes;
    if (sizeBytes === undefined) return;
    const { queue } = this;
    if (!this.#isFinished && this.mover.isComplete(sizeBytes)) {
      this.#isFinished = true;
      queue.finish(sizeBytes);
    }
    if (this.#isFinished && queue.released >= Math.ceil(sizeBytes / queue.blockBytes)) this.succeed({ kind: 'done' });
  }

  protected override hear(message: Message): boolean {
    if (message.kind !== 'size' || this.#sizeBytes !== undefined) return false;
    const { sizeBytes } = message;
    if (this.#offeredBytes !== undefined && sizeBytes > this.#offeredBytes) {
      throw new StreamFailure('nonsense', `a stream of ${this.#offeredBytes} bytes that has become ${sizeBytes}`);
    }
    this.#sizeBytes = sizeBytes;
    return true;
  }
}
