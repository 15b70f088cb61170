// Counts what one guest has, and refuses what would be more than its limits, or more than the
// backend has for all.

import { MillraceError } from '../../../errors.ts';
import type { GuestLimits } from '../../../status/index.ts';
import type { HostAmounts, HostShare } from './host-share.ts';

const names: Readonly<Record<keyof GuestLimits, string>> = {
  devices: 'devices',
  pds: 'protection domains',
  memories: 'pieces of memory',
  regions: 'memory regions',
  grants: 'granted keys',
  memoryBytes: 'bytes of memory',
  cqs: 'completion queues',
  srqs: 'shared receive queues',
  qps: 'queue pairs',
  addressHandles: 'address handles',
  operations: 'operations under way',
  descriptors: 'descriptors',
  mappings: 'mappings',
};

/** What one of each takes of the process at most; measured with the wires shm and tcp. */
const costs: Readonly<Partial<Record<keyof GuestLimits, HostAmounts>>> = {
  devices: { descriptors: 9, mappings: 4 },
  memories: { descriptors: 1, mappings: 1 },
  cqs: { descriptors: 2, mappings: 2 },
  srqs: { descriptors: 2, mappings: 3 },
  // Connected.
  qps: { descriptors: 10, mappings: 7 },
};

export class Quota {
  readonly #limits: GuestLimits;
  readonly #host: Pick<HostShare, 'take' | 'give'>;
  readonly #used: Record<keyof GuestLimits, number>;

  constructor(limits: GuestLimits, host: Pick<HostShare, 'take' | 'give'>) {
    this.#limits = limits;
    this.#host = host;
    this.#used = { ...limits };
    for (const kind of Object.keys(limits) as (keyof GuestLimits)[]) this.#used[kind] = 0;
  }

  get used(): Readonly<Record<keyof GuestLimits, number>> {
    return this.#used;
  }

  /** Throws, and takes nothing, when the guest, or all guests, would have more than the limit. */
  take(kind: keyof GuestLimits, amount = 1): void {
    const what = `${amount} more ${names[kind]}`;
    this.#check(kind, amount, what);
    const cost = costOf(kind, amount);
    if (cost !== undefined) {
      this.#check('descriptors', cost.descriptors, `${what}: ${cost.descriptors} more descriptors`);
      this.#check('mappings', cost.mappings, `${what}: ${cost.mappings} more mappings`);
      const problem = this.#host.take(cost);
      if (problem !== undefined) throw new MillraceError('MILLRACE_ERR_QUOTA', `${what}: ${problem}`);
      this.#used.descriptors += cost.descriptors;
      this.#used.mappings += cost.mappings;
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
    const cost = costOf(kind, amount);
    if (cost === undefined) return;
    this.#host.give(cost);
    this.#used.descriptors -= cost.descriptors;
    this.#used.mappings -= cost.mappings;
  }

  #check(kind: keyof GuestLimits, amount: number, what: string): void {
    if (this.#used[kind] + amount <= this.#limits[kind]) return;
    const has = `this guest has ${this.#used[kind]} and may have ${this.#limits[kind]}`;
    throw new MillraceError('MILLRACE_ERR_QUOTA', `${what}: ${has} (raise the backend's limit '${kind}')`);
  }
}

function costOf(kind: keyof GuestLimits, amount: number): HostAmounts | undefined {
  const cost = costs[kind];
  return cost && { descriptors: amount * cost.descriptors, mappings: amount * cost.mappings };
}
