// Gives each completion of a CQ to the request that waits for it: one dispatcher per CQ.

import { setImmediate as nextTurn } from 'node:timers/promises';
import { UsageError } from '../errors.ts';
import type { CompletionChannel } from './channel.ts';
import { CompletionBatch } from './completion.ts';
import type { Cq } from './cq.ts';

/** Called once, with the row of the completion. */
type OnCompletion = (batch: CompletionBatch, index: number) => void;

// After so many full polls in a row timers and sockets get a turn.
const pollsPerTurn = 16;

const dispatchers = new WeakMap<Cq, Dispatcher>();

export class Dispatcher {
  readonly #cq: Cq;
  readonly #channel: CompletionChannel;
  readonly #pending = new Map<number, OnCompletion>();
  /** Callbacks of requests that found the queue full, called after every batch of completions. */
  readonly #waiting = new Set<() => void>();
  #reserved = 0;
  #lastId = 0;
  #isRunning = false;

  static of(cq: Cq): Dispatcher {
    const dispatcher = dispatchers.get(cq) ?? new Dispatcher(cq);
    dispatchers.set(cq, dispatcher);
    return dispatcher;
  }

  private constructor(cq: Cq) {
    if (cq.channel === undefined) {
      throw new UsageError('wait for requests: the CQ has no channel (device.createCq({ channel }))');
    }
    this.#cq = cq;
    this.#channel = cq.channel;
  }

  /**
   * Makes sure that all requests under way find a place in the CQ; a negative count gives places
   * back.
   */
  reserve(count: number): void {
    const reserved = this.#reserved + count;
    if (reserved > this.#cq.entries) {
      throw new UsageError(`wait for ${reserved} requests: the CQ has ${this.#cq.entries} entries`);
    }
    this.#reserved = reserved;
  }

  /** An id for a request that is about to be posted. */
  expect(onCompletion: OnCompletion): number {
    this.#lastId++;
    this.#pending.set(this.#lastId, onCompletion);
    this.#start();
    return this.#lastId;
  }

  /** The request was not posted, or its completion is not needed any more. */
  forget(wrId: number): void {
    this.#pending.delete(wrId);
    this.#stopUnlessNeeded();
  }

  /** `retry` is called after every batch of completions until `stopWaiting`. */
  waitForRoom(retry: () => void): void {
    this.#waiting.add(retry);
    this.#start();
  }

  stopWaiting(retry: () => void): void {
    this.#waiting.delete(retry);
    this.#stopUnlessNeeded();
  }

  /** A dispatcher without requests must not keep the process alive. */
  #stopUnlessNeeded(): void {
    if (this.#isRunning && !this.#isNeeded()) this.#channel.forget(this.#cq);
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#run();
  }

  // Nothing in here throws: a failed completion rejects its request, and a closed CQ has closed its
  // QPs before.
  async #run(): Promise<void> {
    using batch = new CompletionBatch(Math.min(64, this.#cq.entries));
    // The request is posted first.
    await Promise.resolve();
    for (let polls = 1; this.#isNeeded(); polls++) {
      let count = this.#cq.poll(batch);
      if (count === 0) {
        const changed = this.#channel.changed(this.#cq);
        // One may have come between the poll and the arming.
        count = this.#cq.poll(batch);
        if (count === 0) await changed;
        else this.#channel.forget(this.#cq);
      }
      this.#dispatch(batch, count);
      // Requests that were waiting get a turn of the microtasks, and now and then everything else
      // gets a turn.
      await (polls % pollsPerTurn === 0 ? nextTurn() : Promise.resolve());
    }
    this.#isRunning = false;
  }

  #isNeeded(): boolean {
    return !this.#cq.isClosed && (this.#pending.size > 0 || this.#waiting.size > 0);
  }

  #dispatch(batch: CompletionBatch, count: number): void {
    for (let index = 0; index < count; index++) {
      const wrId = batch.wrId(index);
      const onCompletion = this.#pending.get(wrId);
      this.#pending.delete(wrId);
      onCompletion?.(batch, index);
    }
    if (count > 0) for (const retry of this.#waiting) retry();
  }
}
