// The send requests of one queue pair: a batch for the next post, and how many are under way.

import { type Qp, SendBatch } from '../verbs/index.ts';

export class RequestQueue implements Disposable {
  readonly qp: Qp;
  readonly batch: SendBatch;
  readonly #sendRequests: number;
  /** Requests so far; the number of the last one is also its work request id. */
  posted = 0;
  completed = 0;
  /** Posted since the last one that gets a completion. */
  unsignaled = 0;

  /** Takes the queue pair over. */
  constructor(qp: Qp, sendRequests: number, requestsPerPost: number) {
    this.qp = qp;
    this.#sendRequests = sendRequests;
    this.batch = new SendBatch({ capacity: requestsPerPost, maxSge: 1 });
  }

  get inFlight(): number {
    return this.posted - this.completed;
  }

  get hasRoom(): boolean {
    return this.posted - this.completed < this.#sendRequests;
  }

  /** Posts the batch. Returns '' or what went wrong. */
  post(): string {
    const { batch, qp } = this;
    const { count } = batch;
    let taken = 0;
    let problem = '';
    try {
      taken = qp.postSend(batch);
    } catch (error) {
      problem = error instanceof Error ? error.message : String(error);
    }
    batch.clear();
    // There was room by our own count, so a queue that is full has stopped.
    return problem !== '' || taken === count ? problem : `queue pair ${qp.number} takes no more requests`;
  }

  [Symbol.dispose](): void {
    this.batch[Symbol.dispose]();
    this.qp.close();
  }
}
