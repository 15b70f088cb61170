// One end of a stream, what Producer and Consumer have in common: one form of use, failures,
// waiting without blocking, closing.

import { MillraceError, UsageError } from '../../errors.ts';
import { type EventFd, FdWatch } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import type { Connection } from './connection.ts';
import { errorOfFailure, failureCode, type Role } from './failure.ts';
import { type CheckedOptions, checkOptions, type StreamOptions } from './options.ts';
import { Window } from './window.ts';

/** How a program uses its end. It chooses by the first call and keeps to it. */
type Form = 'window' | 'blocks' | 'node stream' | 'web stream';

export interface StreamEndParts {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: StreamOptions;
  readonly connection: Connection;
}

export class StreamEnd {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: CheckedOptions;
  readonly #connection: Connection;
  #form: Form | undefined;
  #window: Window | undefined;
  #watch: FdWatch | undefined;
  #lifelineWatch: FdWatch | undefined;
  #waiters: (() => void)[] = [];
  #connectionError: unknown;
  #hasConnectionEnded = false;
  #isClosed = false;

  /** Takes over queue and connection. */
  constructor({ role, queue, options, connection }: StreamEndParts) {
    this.role = role;
    this.queue = queue;
    const readAheadBlocks = options.readAheadBlocks ?? (role === 'producer' ? 0 : undefined);
    const { blockBytes, poolBlocks } = queue;
    this.options = checkOptions({ ...options, readAheadBlocks, blockBytes, poolBlocks });
    this.#connection = connection;
    connection.ended.then(
      () => {
        this.#hasConnectionEnded = true;
        this.#wakeWaiters();
      },
      (error: unknown) => {
        this.#connectionError = error;
        // Frees a thread that waits in a page fault of the window, unless the engine has done so.
        if (!this.#isClosed) queue.fail(failureCode.cut);
        this.#wakeWaiters();
      },
    );
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The error with which the stream has failed, if it has. */
  get failure(): Error | undefined {
    if (this.#connectionError instanceof Error) return this.#connectionError;
    if (this.#isClosed) return undefined;
    const code = this.queue.failure;
    return code === 0 ? undefined : errorOfFailure(code, this.role);
  }

  throwIfFailed(): void {
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', `this ${this.role} is closed`);
    const { failure } = this;
    if (failure !== undefined) throw failure;
  }

  /** Settles in which form the program uses the stream. */
  choose(form: Form): void {
    this.throwIfFailed();
    if (this.#form !== undefined && (this.#form !== form || form !== 'window')) {
      const again = this.#form === form ? 'once more' : `as ${form}`;
      throw new UsageError(
        `use a stream ${again}: it is in use as ${this.#form}, and a stream is used in one form, once`,
      );
    }
    this.#form = form;
  }

  /** Made on first use. */
  window(): Window {
    this.choose('window');
    if (this.#window === undefined) {
      this.#window = Window.open({
        role: this.role,
        queue: this.queue,
        options: this.options,
        lifelineFd: this.#connection.lifelineFd,
      });
      // This end's eventfd belongs to the pager now: those that wait check again, and watch the
      // window's doorbell.
      this.#stopWatch();
      this.#wakeWaiters();
    }
    return this.#window;
  }

  get openWindow(): Window | undefined {
    return this.#window;
  }

  /**
   * Waits for the other end without blocking the thread. Rejects when the stream fails. If no event
   * comes for `timeoutMs` (0: no limit), the stream fails.
   */
  async until(isReady: () => boolean, timeoutMs = 0): Promise<void> {
    for (;;) {
      this.throwIfFailed();
      if (isReady()) return;
      await this.#nextEvent(timeoutMs);
    }
  }

  /**
   * Everything is read and released, and the connection has ended. What happens to the stream after
   * that is no failure.
   */
  async untilComplete(): Promise<void> {
    for (;;) {
      if (!this.#isClosed && this.queue.isComplete && this.#hasConnectionEnded) return;
      this.throwIfFailed();
      await this.#nextEvent(0);
    }
  }

  async #nextEvent(timeoutMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiters.push(resolve);
    this.#startWatch().hold(true);
    const timer = timeoutMs > 0 ? setTimeout(() => this.queue.fail(failureCode.timedOut), timeoutMs) : undefined;
    await promise;
    clearTimeout(timer);
  }

  /**
   * `isFinished`: the program has done its part, and the pager commits or releases what it still
   * holds. `isThrough`: closing loses nothing that the other end waits for; otherwise the stream
   * fails.
   */
  async close(isFinished: boolean, isThrough: () => boolean): Promise<void> {
    if (this.#isClosed) return;
    const code = this.role === 'producer' ? failureCode.producerClosed : failureCode.consumerClosed;
    // Before the pager ends, so that a thread that waits in a page fault gets zeroes.
    if (!isFinished) this.queue.fail(code);
    this.#window?.close();
    if (!isThrough()) this.queue.fail(code);
    this.#isClosed = true;
    this.#stopWatch();
    this.#wakeWaiters();
    try {
      await this.#connection.close();
    } finally {
      this.queue.close();
    }
  }

  #ownEvent(): EventFd {
    if (this.#window !== undefined) return this.#window.doorbell;
    return this.role === 'producer' ? this.queue.writable : this.queue.readable;
  }

  #startWatch(): FdWatch {
    if (this.#watch === undefined) {
      const event = this.#ownEvent();
      this.#watch = FdWatch.start(event.fd, () => {
        event.take();
        this.#wakeWaiters();
      });
      this.#watchLifeline();
    }
    return this.#watch;
  }

  #stopWatch(): void {
    this.#watch?.close();
    this.#lifelineWatch?.close();
    this.#watch = undefined;
    this.#lifelineWatch = undefined;
  }

  /** With a window the pager watches the lifeline. */
  #watchLifeline(): void {
    const { lifelineFd } = this.#connection;
    if (lifelineFd === undefined || this.#window !== undefined) return;
    this.#lifelineWatch = FdWatch.start(lifelineFd, () => {
      this.#lifelineWatch?.close();
      this.#lifelineWatch = undefined;
      const { totalBlocks } = this.queue;
      const reached = this.role === 'producer' ? this.queue.released : this.queue.committed;
      if (totalBlocks === undefined || reached < totalBlocks) this.queue.fail(failureCode.peerDied);
      this.#wakeWaiters();
    });
  }

  #wakeWaiters(): void {
    const waiters = this.#waiters;
    this.#waiters = [];
    this.#watch?.hold(false);
    for (const wake of waiters) wake();
  }
}
