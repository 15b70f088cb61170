// The receives of a transport, one for each notice that may come: shared by its queue pairs where the device can.

import { UnsupportedError } from '../errors.ts';
import { type Pd, type Qp, ReceiveBatch, type Srq } from '../verbs/index.ts';

export class Receives implements Disposable {
  /** Undefined: each queue pair has receives of its own. */
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

  /** One was used. */
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
