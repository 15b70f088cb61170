// Requests of one queue of a QP: as many as it has places are posted, the others wait in order.

import type { Completion, CompletionBatch } from './completion.ts';
import type { Dispatcher } from './dispatcher.ts';
import type { ReceiveBatch, SendBatch } from './work-request.ts';

/** What the queue posts to, and how a failed completion reads as an error. */
interface QueueCalls<B> {
  post(batch: B): number;
  fail(completion: Completion): Error;
}

/**
 * Adds the row. No other request has the same `place` until this one is done: 0 to one less than
 * the queue has.
 */
export type Fill<B> = (batch: B, wrId: number, place: number) => void;
export type Done<T> = (batch: CompletionBatch, index: number, place: number) => T;

interface Request<B> {
  readonly fill: Fill<B>;
  resolve(batch: CompletionBatch, index: number, place: number): void;
  reject(error: unknown): void;
}

export class RequestQueue<B extends SendBatch | ReceiveBatch> implements Disposable {
  readonly #dispatcher: Dispatcher;
  readonly #depth: number;
  readonly #batch: B;
  readonly #calls: QueueCalls<B>;
  readonly #places: number[];
  readonly #posted = new Map<number, Request<B>>();
  readonly #line: Request<B>[] = [];
  readonly #retry = (): void => this.#postLine();

  /** `batch` has room for one row; whoever passes it closes it. */
  constructor(dispatcher: Dispatcher, depth: number, batch: B, calls: QueueCalls<B>) {
    this.#dispatcher = dispatcher;
    this.#depth = depth;
    this.#batch = batch;
    this.#calls = calls;
    this.#places = Array.from({ length: depth }, (_, index) => depth - 1 - index);
    dispatcher.reserve(depth);
  }

  /** Posts now, or when there is room and no other request waits before it. */
  add<T>(fill: Fill<B>, done: Done<T>): Promise<T> {
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    const request: Request<B> = {
      fill,
      reject,
      resolve: (batch, index, place) => resolve(done(batch, index, place)),
    };
    this.#line.push(request);
    this.#postLine();
    return promise;
  }

  /** Rejects all requests. */
  reject(reason: Error): void {
    for (const [wrId, request] of this.#posted) {
      this.#dispatcher.forget(wrId);
      request.reject(reason);
    }
    for (const request of this.#line) request.reject(reason);
    this.#posted.clear();
    this.#line.length = 0;
    this.#dispatcher.stopWaiting(this.#retry);
  }

  [Symbol.dispose](): void {
    this.#dispatcher.reserve(-this.#depth);
  }

  #postLine(): void {
    while (this.#line.length > 0 && this.#post(this.#line[0])) this.#line.shift();
    if (this.#line.length > 0) this.#dispatcher.waitForRoom(this.#retry);
    else this.#dispatcher.stopWaiting(this.#retry);
  }

  /** False when there was no room. A request that cannot be posted at all is rejected. */
  #post(request: Request<B>): boolean {
    const place = this.#places.pop();
    if (place === undefined) return false;
    const wrId = this.#dispatcher.expect((completions, index) => this.#finish(wrId, place, completions, index));
    try {
      this.#batch.clear();
      request.fill(this.#batch, wrId, place);
      if (this.#calls.post(this.#batch) > 0) {
        this.#posted.set(wrId, request);
        return true;
      }
    } catch (error) {
      this.#takeBack(wrId, place);
      request.reject(error);
      return true;
    }
    this.#takeBack(wrId, place);
    return false;
  }

  #takeBack(wrId: number, place: number): void {
    this.#dispatcher.forget(wrId);
    this.#places.push(place);
  }

  #finish(wrId: number, place: number, batch: CompletionBatch, index: number): void {
    const request = this.#posted.get(wrId);
    this.#posted.delete(wrId);
    if (batch.status(index) === 0) request?.resolve(batch, index, place);
    else request?.reject(this.#calls.fail(batch.toCompletion(index)));
    this.#places.push(place);
  }
}
