// A shared receive queue: receives that any QP made with it may use.

import { UsageError } from '../errors.ts';
import { VerbsObject } from './object.ts';
import type { Pd } from './pd.ts';
import type { ProviderSrq } from './provider.ts';
import type { ReceiveBatch } from './work-request.ts';

export interface SrqOptions {
  readonly requests?: number;
  readonly maxSge?: number;
}

export class Srq extends VerbsObject {
  readonly pd: Pd;
  readonly #srq: ProviderSrq;
  readonly #untrack: () => void;

  constructor(pd: Pd, srq: ProviderSrq) {
    super([pd]);
    this.pd = pd;
    this.#srq = srq;
    this.#untrack = pd.device.trackSrq(srq, this);
  }

  get provided(): ProviderSrq {
    this.checkOpen();
    return this.#srq;
  }

  /** Posts all rows, or as many as fit; returns how many were taken. */
  post(batch: ReceiveBatch): number {
    this.checkOpen();
    return this.#srq.post(batch);
  }

  /** One `srqLimit` event of the device when fewer receives than this are left; 0 asks for none. */
  setLimit(limit: number): void {
    this.checkOpen();
    if (!Number.isInteger(limit) || limit < 0) throw new UsageError(`an SRQ limit of ${limit}`);
    this.#srq.setLimit(limit);
  }

  protected override release(): void {
    this.#untrack();
    this.#srq.close();
  }
}
