// The receives of a transport, one for each notification that may come: in a shared receive queue
// where the device has one.

import { UnsupportedError } from '../errors.ts';
import { type Pd, type Qp, ReceiveBatch, type Srq } from '../verbs/index.ts';

export class Receives implements Disposable {
  /** Undefined where each queue pair has receives of its own. */
  readonly srq: Srq | undefined;
  readonly #count: number;
  readonly #batch: ReceiveBatch;

  constructor(pd: Pd, count: number, isShared: boolean) {
    this.#count = count;
    this.srq = isShared ? sharedQueue(pd, count) : undefined;
    this.#batch = new ReceiveBatch({ capacity: count, maxSge: 1 });
  }

  /** Posts all of them. */
  fill(qps: Iterable<Qp>): void {
    for (let index = 0; index < this.#count; index++) this.#batch.receive(index);
    if (this.srq === undefined) for (const qp of qps) qp.postReceive(this.#batch);
    else this.srq.post(this.#batch);
  }

  /** Posts one again that was used. */
  repost(qp: Qp, wrId: number): void {
    this.#batch.clear();
    this.#batch.receive(wrId);
    if (this.srq === undefined) qp.postReceive(this.#batch);
    else this.srq.post(this.#batch);
  }

  [Symbol.dispose](): void {
    this.#batch[Symbol.dispose]();
    this.srq?.close();
  }
}

function sharedQueue(pd: Pd, requests: number): Srq | undefined {
  try {
    return pd.createSrq({ requests, maxSge: 1 });
  } catch (error) {
    if (error instanceof UnsupportedError || pd.device.attributes.maxSrqs === 0) return undefined;
    throw error;
  }
}
