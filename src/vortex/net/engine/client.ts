// The engine of a stream as the program's thread sees it: the connection to the other end.

import { MillraceError, UnsupportedError, UsageError } from '../../../errors.ts';
import { Socket } from '../../../native/index.ts';
import type { BlockQueue, Connection } from '../../stream/index.ts';
import { errorOfFailure, failureCode, type Role, VortexError } from '../../stream/index.ts';
import { failureCodeOf } from '../stream-failure.ts';
import type { EngineFailure, FromEngine, ReceiverSettings, SenderSettings, ToEngine } from './messages.ts';
import { EngineThread } from './thread.ts';

/** An ended engine whose thread is not idle after this time is terminated. */
const IDLE_MS = 2000;

interface EngineHandlers {
  readonly onListening?: ((port: number) => void) | undefined;
  readonly onRefused?: ((reason: string) => void) | undefined;
  /** Makes the queue of a receiver. */
  readonly makeQueue?: (blockBytes: number, sizeBytes: number | undefined) => BlockQueue;
}

export class EngineClient implements Connection {
  readonly ended: Promise<void>;
  readonly #ready = Promise.withResolvers<void>();
  readonly #over = Promise.withResolvers<void>();
  readonly #idle = Promise.withResolvers<void>();
  readonly #thread: EngineThread;
  readonly #lifeline: Socket;
  readonly #role: Role;
  readonly #what: string;
  #queue: BlockQueue | undefined;
  #hasEnded = false;

  /** `what`: what was attempted, for error messages. `queue`: that of a sender. */
  constructor(
    settings: SenderSettings | ReceiverSettings,
    what: string,
    handlers: EngineHandlers,
    queue: BlockQueue | undefined,
  ) {
    this.#what = what;
    this.#role = settings.role === 'sender' ? 'producer' : 'consumer';
    this.#queue = queue;
    this.ended = this.#over.promise;
    this.ended.catch(() => {});
    this.#ready.promise.catch(() => {});
    const [lifeline, engineLifeline] = Socket.pair();
    this.#lifeline = lifeline;
    this.#thread = EngineThread.start(
      { ...settings, lifelineFd: engineLifeline.release() },
      {
        onMessage: (message) => this.#onMessage(message, handlers),
        onIdle: (reason) => {
          if (reason !== undefined) this.#end({ kind: 'failed', reason });
          this.#idle.resolve();
        },
      },
    );
  }

  /**
   * Hangs up when the engine has ended: a program that is blocked in a page fault receives no
   * message.
   */
  get lifelineFd(): number {
    return this.#lifeline.fd;
  }

  /** Resolves when both sides have agreed. When it rejects, the engine has ended. */
  async ready(signal: AbortSignal | undefined): Promise<void> {
    const onAbort = (): void => this.#tell({ kind: 'close', reason: 'opening the stream was aborted' });
    signal?.addEventListener('abort', onAbort);
    try {
      if (signal?.aborted === true) onAbort();
      await this.#ready.promise;
    } catch (error) {
      await this.close();
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /**
   * A sender that has finished waits until everything is read; otherwise the peer is told that the
   * stream was closed.
   */
  async close(): Promise<void> {
    this.#tell({ kind: 'close', reason: 'the stream was closed' });
    await this.#over.promise.catch(() => {});
    const timer = setTimeout(() => this.#thread.terminate(), IDLE_MS);
    await this.#idle.promise;
    clearTimeout(timer);
    this.#lifeline.close();
  }

  #tell(message: ToEngine): void {
    if (!this.#hasEnded) this.#thread.tell(message);
  }

  #onMessage(message: FromEngine, handlers: EngineHandlers): void {
    switch (message.kind) {
      case 'listening':
        handlers.onListening?.(message.port);
        break;
      case 'refused':
        handlers.onRefused?.(message.reason);
        break;
      case 'geometry':
        this.#makeQueue(message.blockBytes, message.sizeBytes, handlers);
        break;
      case 'ready':
        this.#ready.resolve();
        break;
      case 'ended':
        this.#end(message.failure);
    }
  }

  #makeQueue(blockBytes: number, sizeBytes: number | undefined, handlers: EngineHandlers): void {
    try {
      this.#queue = handlers.makeQueue?.(blockBytes, sizeBytes);
      if (this.#queue !== undefined) this.#tell({ kind: 'queue', parts: this.#queue.parts });
    } catch (error) {
      this.#ready.reject(error);
    }
  }

  #end(failure: EngineFailure | undefined): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    if (failure === undefined) {
      this.#over.resolve();
      this.#ready.reject(new VortexError('MILLRACE_ERR_VORTEX_ABORTED', `${this.#what}: the stream was closed`));
      return;
    }
    const error = this.#errorOf(failure);
    // The engine has done so, unless its thread died.
    if (this.#queue?.ledger.isClosed === false) this.#queue.fail(failureCode.cut);
    this.#ready.reject(error);
    this.#over.reject(error);
  }

  #errorOf({ kind, reason }: EngineFailure): MillraceError {
    const message = `${this.#what}: ${reason}`;
    if (kind === 'usage') return new UsageError(message);
    if (kind === 'unsupported') return new UnsupportedError(message);
    if (kind === 'absent') return new MillraceError('MILLRACE_ERR_NOT_RUNNING', message);
    if (kind === 'failed') return new VortexError('MILLRACE_ERR_VORTEX_SYSTEM', message);
    return new VortexError(errorOfFailure(failureCodeOf(kind, this.#role), this.#role).code, message);
  }
}
