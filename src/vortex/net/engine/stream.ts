// A stream while its blocks move, in the engine: the loop, the control connection, and how the
// stream ends.

import type { BlockQueue } from '../../stream/index.ts';
import type { Control } from '../control.ts';
import type { Mover, ReceiverMover } from '../movers/mover.ts';
import type { Message } from '../protocol.ts';
import { failureOf, StreamFailure } from '../stream-failure.ts';
import { EngineLoop } from './loop.ts';

/**
 * When the wire breaks, the peer may still tell the reason on the control connection: it gets this
 * long.
 */
const REASON_MS = 500;

interface EngineStreamOptions {
  readonly queue: BlockQueue;
  readonly control: Control;
  readonly timeoutMs: number;
}

/** Owns the mover and the control connection; the queue is the engine's. */
abstract class EngineStream<M extends Mover> {
  protected readonly queue: BlockQueue;
  protected readonly control: Control;
  protected readonly mover: M;
  readonly #timeoutMs: number;
  readonly #loop: EngineLoop;
  readonly #ended = Promise.withResolvers<void>();
  #wireFailing: NodeJS.Timeout | undefined;
  #isOver = false;

  constructor({ queue, control, timeoutMs }: EngineStreamOptions, mover: M, queueFd: number) {
    this.queue = queue;
    this.control = control;
    this.#timeoutMs = timeoutMs;
    this.mover = mover;
    this.#loop = new EngineLoop({
      mover,
      queueFd,
      onTurn: () => this.#onTurn(),
      onError: (error) => this.#onWireFailure(failureOf(error)),
    });
  }

  /**
   * Resolves when everything is through, or when the program at this end has closed the stream:
   * `signal` is aborted with an Error that says why. Rejects with a StreamFailure.
   */
  async run(signal: AbortSignal): Promise<void> {
    const onClose = (): void => this.#close((signal.reason as Error).message);
    signal.addEventListener('abort', onClose);
    try {
      if (signal.aborted) onClose();
      if (!this.#isOver) this.#start();
      await this.#ended.promise;
    } finally {
      signal.removeEventListener('abort', onClose);
    }
  }

  #start(): void {
    this.control.start(this.#timeoutMs, {
      onMessage: (message) => this.#onMessage(message),
      onFailure: (failure) => this.#fail(failure),
    });
    // Blocks may have been committed before the loop began to watch the queue.
    this.#loop.run();
  }

  /** Whether this end has done its part, and only the peer's answer is missing. */
  protected abstract readonly isFinishing: boolean;

  /** Called after each turn of the loop. */
  protected abstract onProgress(): void;

  /** False when the message is not expected now. */
  protected abstract onMessage(message: Message): boolean;

  /** Everything is through. */
  protected succeed(last?: Message): void {
    this.#finish(undefined, last);
  }

  /** The program has closed its end. A stream that is finishing goes on to its end. */
  #close(reason: string): void {
    this.#loop.run();
    if (!this.isFinishing || this.queue.failure !== 0) this.#hangUp(reason);
  }

  #onTurn(): void {
    if (this.queue.failure === 0) this.onProgress();
    else this.#hangUp('its program closed the stream or used it wrongly');
  }

  #hangUp(reason: string): void {
    this.#finish(undefined, { kind: 'bye', reason });
  }

  #onMessage(message: Message): void {
    try {
      if (message.kind === 'bye') throw new StreamFailure('closed', `the peer ended the stream: ${message.reason}`);
      if (message.kind === 'cut') throw new StreamFailure('wire', `the peer says: ${message.reason}`);
      if (message.kind === 'refused') throw new StreamFailure('protocol', `the peer refuses: ${message.reason}`);
      if (!this.onMessage(message)) {
        throw new StreamFailure('protocol', `the peer sent ${message.kind}, which is not expected now`);
      }
      this.#loop.run();
    } catch (error) {
      this.#fail(failureOf(error));
    }
  }

  #onWireFailure(failure: StreamFailure): void {
    if (this.#isOver) return;
    if (failure.kind === 'protocol') {
      this.#fail(failure);
      return;
    }
    this.#loop.stop();
    this.#wireFailing ??= setTimeout(() => this.#fail(failure), REASON_MS);
  }

  #fail(failure: StreamFailure): void {
    const { kind, message: reason } = failure;
    if (kind === 'protocol') this.#finish(failure, { kind: 'refused', reason });
    else this.#finish(failure, kind === 'wire' ? { kind: 'cut', reason } : undefined);
  }

  #finish(failure: StreamFailure | undefined, last: Message | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#wireFailing);
    this.#loop.stop();
    this.control.end(last);
    this.mover[Symbol.dispose]();
    if (failure === undefined) this.#ended.resolve();
    else this.#ended.reject(failure);
  }
}

/** Ends when the receiver tells that everything is read. */
export class SenderStream extends EngineStream<Mover> {
  #isSizeSent = false;

  constructor(options: EngineStreamOptions, mover: Mover) {
    super(options, mover, options.queue.readable.fd);
  }

  protected override get isFinishing(): boolean {
    return this.#isSizeSent;
  }

  protected override onProgress(): void {
    const { committed, sizeBytes, blockBytes } = this.queue;
    if (this.#isSizeSent || sizeBytes === undefined || committed * blockBytes < sizeBytes) return;
    this.#isSizeSent = true;
    this.control.send({ kind: 'size', sizeBytes });
  }

  protected override onMessage(message: Message): boolean {
    if (message.kind !== 'done') return false;
    if (!this.#isSizeSent) throw new StreamFailure('protocol', 'the receiver sent done before everything was sent');
    this.succeed();
    return true;
  }
}

/** Ends when everything has arrived and was read. */
export class ReceiverStream extends EngineStream<ReceiverMover> {
  readonly #offeredBytes: number | undefined;
  #sizeBytes: number | undefined;
  #isFinished = false;

  constructor(options: EngineStreamOptions, mover: ReceiverMover, offeredBytes: number | undefined) {
    super(options, mover, options.queue.writable.fd);
    this.#offeredBytes = offeredBytes;
  }

  /** A receiver that has read everything has ended already. */
  protected override get isFinishing(): boolean {
    return false;
  }

  protected override onProgress(): void {
    const sizeBytes = this.#sizeBytes;
    if (sizeBytes === undefined) return;
    const { queue } = this;
    if (!this.#isFinished && this.mover.isComplete(sizeBytes)) {
      this.#isFinished = true;
      queue.finish(sizeBytes);
    }
    if (this.#isFinished && queue.released >= Math.ceil(sizeBytes / queue.blockBytes)) this.succeed({ kind: 'done' });
  }

  protected override onMessage(message: Message): boolean {
    if (message.kind !== 'size' || this.#sizeBytes !== undefined) return false;
    const { sizeBytes } = message;
    if (this.#offeredBytes !== undefined && sizeBytes > this.#offeredBytes) {
      throw new StreamFailure(
        'protocol',
        `the sender offered ${this.#offeredBytes} bytes, and the stream has ${sizeBytes}`,
      );
    }
    this.#sizeBytes = sizeBytes;
    return true;
  }
}
