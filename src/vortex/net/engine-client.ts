// A stream's engine as the program's thread sees it: started, asked, and at rest for certain.

import { MillraceError, UnsupportedError, UsageError } from '../../errors.ts';
import { Socket } from '../../native/index.ts';
import type { BlockQueue, Carrier } from '../stream/index.ts';
import { errorOfFailure, failureCode, type Role, VortexError } from '../stream/index.ts';
import type { EngineFailure, FromEngine, ReceiverSettings, SenderSettings, ToEngine } from './engine-messages.ts';
import { EngineThread } from './engine-thread.ts';
import { failureCodeOf } from './failure-codes.ts';

/** An engine that has said its last word and does not come to rest so soon is ended. */
const REST_MS = 2000;

export interface EngineHandlers {
  readonly onListening?: ((port: number) => void) | undefined;
  readonly onRefused?: ((reason: string) => void) | undefined;
  /** Makes the queue of a receiver. */
  readonly makeQueue?: (blockBytes: number, sizeBytes: number | undefined) => BlockQueue;
}

export class EngineClient implements Carrier {
  readonly ended: Promise<void>;
  readonly #ready = Promise.withResolvers<string>();
  readonly #over = Promise.withResolvers<void>();
  readonly #rested = Promise.withResolvers<void>();
  readonly #thread: EngineThread;
  readonly #life: Socket;
  readonly #role: Role;
  readonly #what: string;
  #queue: BlockQueue | undefined;
  #hasEnded = false;

  /** `what`: the attempt, for messages. `queue`: of a sender. */
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
    const [life, engineLife] = Socket.pair();
    this.#life = life;
    this.#thread = EngineThread.start(
      { ...settings, lifeFd: engineLife.release() },
      {
        onMessage: (message) => this.#hear(message, handlers),
        onRest: (reason) => {
          if (reason !== undefined) this.#end({ kind: 'failed', reason });
          this.#rested.resolve();
        },
      },
    );
  }

  /** Hangs up when the engine has ended: a program that stands still in a page fault hears no message. */
  get lifeFd(): number {
    return this.#life.fd;
  }

  /** Resolves to the peer's address when both sides have come to terms; the engine has ended when this rejects. */
  async ready(signal: AbortSignal | undefined): Promise<string> {
    const onAbort = (): void => this.#tell({ kind: 'close', reason: 'it was given up' });
    signal?.addEventListener('abort', onAbort);
    try {
      if (signal?.aborted === true) onAbort();
      return await this.#ready.promise;
    } catch (error) {
      await this.close();
      signal?.throwIfAborted();
      throw error;
    } finally {
      signal?.removeEventListener('abort', onAbort);
    }
  }

  /** A sender that has finished waits until all is read; whoever has not leaves, and the other side hears of it. */
  async close(): Promise<void> {
    this.#tell({ kind: 'close', reason: 'it was closed' });
    await this.#over.promise.catch(() => {});
    const timer = setTimeout(() => this.#thread.terminate(), REST_MS);
    await this.#rested.promise;
    clearTimeout(timer);
    this.#life.close();
  }

  #tell(message: ToEngine): void {
    if (!this.#hasEnded) this.#thread.tell(message);
  }

  #hear(message: FromEngine, handlers: EngineHandlers): void {
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
        this.#ready.resolve(message.peer);
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
      this.#ready.reject(new VortexError('MILLRACE_ERR_VORTEX_ABORTED', `${this.#what}: it was closed`));
      return;
    }
    const error = this.#errorOf(failure);
    // The engine has done so, unless it died.
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
