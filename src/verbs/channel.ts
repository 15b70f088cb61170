// A completion channel: a descriptor that becomes readable when an armed CQ has something.

import { UsageError } from '../errors.ts';
import { FdWatch } from '../native/index.ts';
import type { Cq } from './cq.ts';
import type { Device } from './device.ts';
import { VerbsObject } from './object.ts';
import type { ProviderChannel, ProviderCq } from './provider.ts';

export class CompletionChannel extends VerbsObject {
  readonly #channel: ProviderChannel;
  readonly #cqs: ReadonlyMap<ProviderCq, Cq>;
  /** Waits on Node's event loop: one promise per CQ, however many await it. */
  readonly #waiting = new Map<Cq, PromiseWithResolvers<void>>();
  #watch: FdWatch | undefined;

  constructor(device: Device, channel: ProviderChannel, cqs: ReadonlyMap<ProviderCq, Cq>) {
    super([device]);
    this.#channel = channel;
    this.#cqs = cqs;
  }

  get provided(): ProviderChannel {
    this.checkOpen();
    return this.#channel;
  }

  /** For epoll: readable when `take` may have something. */
  get fd(): number {
    this.checkOpen();
    return this.#channel.fd;
  }

  /**
   * Armed CQs that have had a completion. Each must be armed again for its next event. Never
   * blocks.
   */
  take(): readonly Cq[] {
    this.checkOpen();
    const cqs = this.#channel.take().flatMap((provided) => this.#cqs.get(provided) ?? []);
    for (const cq of cqs) this.#resolve(cq);
    return cqs;
  }

  /**
   * Arms the CQ, and resolves at its next completion or when it is closed, without blocking the
   * thread. What came before gives no event: poll once more after the call, and await only if there
   * was nothing.
   */
  changed(cq: Cq): Promise<void> {
    this.checkOpen();
    if (cq.channel !== this) throw new UsageError('wait for a CQ: it was made with another channel, or with none');
    cq.arm();
    this.#watch ??= FdWatch.start(this.#channel.fd, () => void this.take());
    this.#watch.hold(true);
    const waiting = this.#waiting.get(cq) ?? Promise.withResolvers<void>();
    this.#waiting.set(cq, waiting);
    return waiting.promise;
  }

  /** Ends the wait for a CQ that is closed, or had a completion already. Resolves `changed`. */
  forget(cq: Cq): void {
    this.#resolve(cq);
  }

  // The CQs are closed by now, so nothing waits.
  protected override release(): void {
    this.#watch?.close();
    this.#channel.close();
  }

  #resolve(cq: Cq): void {
    const waiting = this.#waiting.get(cq);
    if (waiting === undefined) return;
    this.#waiting.delete(cq);
    if (this.#waiting.size === 0) this.#watch?.hold(false);
    waiting.resolve();
  }
}
