// Counts what one guest has, and refuses what would be more than its limits.

import { MillraceError } from '../../../errors.ts';
import type { GuestLimits } from '../../../status/index.ts';

const names: Readonly<Record<keyof GuestLimits, string>> = {
  devices: 'devices',
  pds: 'protection domains',
  regions: 'memory regions',
  memoryBytes: 'bytes of memory',
  cqs: 'completion queues',
  srqs: 'shared receive queues',
  qps: 'queue pairs',
  addressHandles: 'address handles',
  operations: 'operations under way',
};

export class Quota {
  readonly #limits: GuestLimits;
  readonly #used: Record<keyof GuestLimits, number>;

  constructor(limits: GuestLimits) {
    this.#limits = limits;
    this.#used = { ...limits };
    for (const kind of Object.keys(limits) as (keyof GuestLimits)[]) this.#used[kind] = 0;
  }

  get used(): Readonly<Record<keyof GuestLimits, number>> {
    return this.#used;
  }

  /** Throws, and takes nothing, when the guest would have more than its limit. */
  take(kind: keyof GuestLimits, amount = 1): void {
    if (this.#used[kind] + amount > this.#limits[kind]) {
      const has = `this guest has ${this.#used[kind]} and may have ${this.#limits[kind]}`;
      const message = `${amount} more ${names[kind]}: ${has} (raise the backend's limit '${kind}')`;
      throw new MillraceError('MILLRACE_ERR_QUOTA', message);
    }
    this.#used[kind] += amount;
  }

  /** As `take`, given back when the stack is disposed of: for creation that is all or nothing. */
  takeWith(undo: DisposableStack, kind: keyof GuestLimits, amount = 1): void {
    this.take(kind, amount);
    undo.defer(() => this.give(kind, amount));
  }

  give(kind: keyof GuestLimits, amount = 1): void {
    this.#used[kind] -= amount;
  }
}
