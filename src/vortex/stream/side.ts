// What a producer and a consumer have in common: one form of use, failures, waiting without blocking, and the end.

import { MillraceError, UsageError } from '../../errors.ts';
import { type EventFd, FdWatch } from '../../native/index.ts';
import type { BlockQueue } from './block-queue.ts';
import type { Carrier } from './carrier.ts';
import { errorOfFailure, failureCode, type Role } from './failure.ts';
import { type CheckedOptions, checkOptions, type StreamOptions } from './options.ts';
import { Window } from './window.ts';

/** How a program uses its end. It chooses by the first call and keeps to it. */
export type Form = 'window' | 'blocks' | 'node stream' | 'web stream';

export interface SideParts {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: StreamOptions;
  readonly carrier: Carrier;
  readonly peer?: number | undefined;
}

export class Side {
  readonly role: Role;
  readonly queue: BlockQueue;
  readonly options: CheckedOptions;
  readonly #carrier: Carrier;
  readonly #peer: number | undefined;
  #form: Form | undefined;
  #window: Window | undefined;
  #watch: FdWatch | undefined;
  #peerWatch: FdWatch | undefined;
  #waiters: (() => void)[] = [];
  #carrierError: unknown;
  #hasCarrierEnded = false;
  #isClosed = false;

  /** Takes queue and carrier over. */
  constructor({ role, queue, options, carrier, peer }: SideParts) {
    this.role = role;
    this.queue = queue;
    const readAheadBlocks = options.readAheadBlocks ?? (role === 'producer' ? 0 : undefined);
    const { blockBytes, poolBlocks } = queue;
    this.options = checkOptions({ ...options, readAheadBlocks, blockBytes, poolBlocks });
    this.#carrier = carrier;
    this.#peer = peer;
    carrier.ended.then(
      () => {
        this.#hasCarrierEnded = true;
        this.#wakeWaiters();
      },
      (error: unknown) => {
        this.#carrierError = error;
        // Frees a thread that waits in the window, if the carrier has not done so.
        if (!this.#isClosed) queue.fail(failureCode.cut);
        this.#wakeWaiters();
      },
    );
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  get form(): Form | undefined {
    return this.#form;
  }

  /** The error with which the stream has failed, if it has. */
  get failure(): Error | undefined {
    if (this.#carrierError instanceof Error) return this.#carrierError;
    if (this.#isClosed) return undefined;
    const code = this.queue.failure;
    return code === 0 ? undefined : errorOfFailure(code, this.role);
  }

  throwIfFailed(): void {
    if (this.#isClosed) throw new MillraceError('MILLRACE_ERR_CLOSED', `this ${this.role} is closed`);
    const { failure } = this;
    if (failure !== undefined) throw failure;
  }

  /** Settles how the stream is used. */
  choose(form: Form): void {
    this.throwIfFailed();
    if (this.#form !== undefined && (this.#form !== form || form !== 'window')) {
      const again = this.#form === form ? 'once more' : `as ${form}`;
      throw new UsageError(`use a stream ${again} that is in use as ${this.#form}: it has one form, one time`);
    }
    this.#form = form;
  }

  /** Made on first use. */
  window(): Window {
    this.choose('window');
    if (this.#window === undefined) {
      this.#window = Window.open({ role: this.role, queue: this.queue, options: this.options, peer: this.#peer });
      // The side's own eventfd is the pager's now: whoever waits looks again, and watches the window's.
      this.#stopWatch();
      this.#wakeWaiters();
    }
    return this.#window;
  }

  get openWindow(): Window | undefined {
    return this.#window;
  }

  /**
   * Waits for the other side without blocking the thread. Rejects when the stream fails; a wait without any news for
   * longer than `timeoutMs` (0: none) fails it.
   */
  async until(isReady: () => boolean, timeoutMs = 0): Promise<void> {
    for (;;) {
      this.throwIfFailed();
      if (isReady()) return;
      await this.#news(timeoutMs);
    }
  }

  /** All is read and given back, and the carrier says so too. What happens to the stream after that is no failure. */
  async untilComplete(): Promise<void> {
    for (;;) {
      if (!this.#isClosed && this.queue.isComplete && this.#hasCarrierEnded) return;
      this.throwIfFailed();
      await this.#news(0);
    }
  }

  async #news(timeoutMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiters.push(resolve);
    this.#startWatch().hold(true);
    const timer = timeoutMs > 0 ? setTimeout(() => this.queue.fail(failureCode.timedOut), timeoutMs) : undefined;
    await promise;
    clearTimeout(timer);
  }

  /**
   * `isFinished`: the program has done its part, and the pager gives away what it still holds. `isThrough`: nothing that
   * the other side waits for is lost by closing; otherwise the stream fails.
   */
  async close(isFinished: boolean, isThrough: () => boolean): Promise<void> {
    if (this.#isClosed) return;
    const code = this.role === 'producer' ? failureCode.producerClosed : failureCode.consumerClosed;
    // Before the pager ends, so that who waits in a fault gets zeroes.
    if (!isFinished) this.queue.fail(code);
    this.#window?.close();
    if (!isThrough()) this.queue.fail(code);
    this.#isClosed = true;
    this.#stopWatch();
    this.#wakeWaiters();
    try {
      await this.#carrier.close();
    } finally {
      this.queue.close();
    }
  }

  #ownEvent(): EventFd {
    // In the window form the side's own eventfd is the pager's.
    if (this.#window !== undefined) return this.#window.notice;
    return this.role === 'producer' ? this.queue.writable : this.queue.readable;
  }

  #startWatch(): FdWatch {
    if (this.#watch === undefined) {
      const event = this.#ownEvent();
      this.#watch = FdWatch.start(event.fd, () => {
        event.take();
        this.#wakeWaiters();
      });
      this.#watchPeer();
    }
    return this.#watch;
  }

  #stopWatch(): void {
    this.#watch?.close();
    this.#peerWatch?.close();
    this.#watch = undefined;
    this.#peerWatch = undefined;
  }

  /** With a window the pager looks after the peer. */
  #watchPeer(): void {
    if (this.#peer === undefined || this.#window !== undefined) return;
    this.#peerWatch = FdWatch.start(this.#peer, () => {
      this.#peerWatch?.close();
      this.#peerWatch = undefined;
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
