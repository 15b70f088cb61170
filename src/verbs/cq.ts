// A completion queue: polled in batches, or read with `for await`.

import { UsageError } from '../errors.ts';
import type { CompletionChannel } from './channel.ts';
import { type Completion, CompletionBatch } from './completion.ts';
import type { Device } from './device.ts';
import { VerbsObject } from './object.ts';
import type { ProviderCq } from './provider.ts';

export interface CqOptions {
  readonly entries?: number;
  /** Where events of this CQ go. Without one it can only be polled. */
  readonly channel?: CompletionChannel;
}

export class Cq extends VerbsObject implements AsyncIterable<Completion> {
  readonly device: Device;
  readonly entries: number;
  readonly channel: CompletionChannel | undefined;
  readonly #cq: ProviderCq;
  readonly #untrack: () => void;

  constructor(
    device: Device,
    cq: ProviderCq,
    entries: number,
    channel: CompletionChannel | undefined,
    untrack: () => void,
  ) {
    super(channel === undefined ? [device] : [device, channel]);
    this.device = device;
    this.entries = entries;
    this.channel = channel;
    this.#cq = cq;
    this.#untrack = untrack;
  }

  get provided(): ProviderCq {
    this.checkOpen();
    return this.#cq;
  }

  /**
   * Fills the batch from its start and returns how many completions it holds. Never blocks,
   * allocates nothing.
   */
  poll(batch: CompletionBatch): number {
    this.checkOpen();
    return this.#cq.poll(batch);
  }

  /**
   * Asks for one event in the channel at the next completion. Poll once more afterwards: one may
   * have come before.
   */
  arm(solicitedOnly = false): void {
    this.checkOpen();
    this.#cq.arm(solicitedOnly);
  }

  /**
   * Every completion as it comes, without blocking the thread, until the CQ is closed. Needs a
   * channel.
   */
  [Symbol.asyncIterator](): AsyncGenerator<Completion, void, undefined> {
    this.checkOpen();
    if (this.channel === undefined) {
      throw new UsageError('wait for completions: the CQ has no channel (device.createCq({ channel }))');
    }
    return this.#completions(this.channel);
  }

  async *#completions(channel: CompletionChannel): AsyncGenerator<Completion, void, undefined> {
    using batch = new CompletionBatch(Math.min(64, this.entries));
    while (!this.isClosed) {
      let count = this.#cq.poll(batch);
      if (count === 0) {
        const changed = channel.changed(this);
        // One may have come between the poll and the arming.
        count = this.#cq.poll(batch);
        if (count === 0) await changed;
        else channel.forget(this);
      }
      for (let index = 0; index < count; index++) yield batch.toCompletion(index);
    }
  }

  protected override release(): void {
    this.#untrack();
    this.#cq.close();
    this.channel?.forget(this);
  }
}
