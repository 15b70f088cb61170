// Shared receive queues of the device.

import { ibverbs, lastRefusal } from '../../native/index.ts';
import type { ProviderSrq, ReceiveBatch, SrqSpec } from '../../verbs/index.ts';
import { checkVerbs, isFull, refusalError } from './errors.ts';
import { Handle } from './handle.ts';

export class IbvSrq implements ProviderSrq {
  readonly handle: Handle;
  readonly #maxSge: number;

  constructor(pd: Handle, { requests, maxSge }: SrqSpec) {
    const made = ibverbs.ibvCreateSrq(pd.value, requests, maxSge);
    this.handle = new Handle(
      checkVerbs(made, 'ibv_create_srq', () => `make an SRQ of ${requests} receives`),
      'srq',
    );
    this.#maxSge = maxSge;
  }

  post(batch: ReceiveBatch): number {
    const { count } = batch;
    const taken = ibverbs.ibvPostSrq(this.handle.value, batch.memory.id, batch.rowWords, count);
    if (taken === count || isFull(lastRefusal())) return taken;
    throw refusalError({
      errno: lastRefusal(),
      what: 'receive',
      row: taken,
      queue: 'an SRQ',
      maxSge: this.#maxSge,
    });
  }

  setLimit(limit: number): void {
    checkVerbs(ibverbs.ibvSrqLimit(this.handle.value, limit), 'ibv_modify_srq', () => `set an SRQ's limit to ${limit}`);
  }

  close(): void {
    this.handle.close();
  }
}
