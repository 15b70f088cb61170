// What guests may have: who may connect, which devices they see, and how much of everything each of them gets.

import { MillraceError } from '../../errors.ts';
import type { SoftDeviceOptions } from '../../providers/index.ts';
import type { GuestLimits } from '../../status/index.ts';

/** A device that guests see. */
export interface DeviceGrant {
  /** What guests call it; of a device that is not described here, its own name. */
  readonly name: string;
  /** A soft device with settings of its own; without, the device of that name with its defaults. */
  readonly soft?: SoftDeviceOptions;
}

/**
 * A process has 65530 mappings (vm.max_map_count), and every region and ring is one or two of them: with these and the
 * default number of guests, all guests together cannot use them up.
 */
export const defaultLimits: GuestLimits = {
  devices: 8,
  pds: 128,
  regions: 512,
  memoryBytes: 1024 ** 3,
  cqs: 128,
  srqs: 32,
  qps: 256,
  addressHandles: 512,
  operations: 262_144,
};

export const DEFAULT_MAX_GUESTS = 32;

export interface BackendPolicy {
  /** Who may connect by the unix socket: any of these users or groups. Default: the user whom the backend runs as. */
  readonly uids?: readonly number[];
  readonly gids?: readonly number[];
  /** Default: all that this machine has. */
  readonly devices?: readonly DeviceGrant[];
  readonly limits?: Partial<GuestLimits>;
  readonly maxGuests?: number;
  /** Of one process; one that comes more often waits, and more so if it has broken the rules. Default: 64. */
  readonly registrationsPerSecond?: number;
  /**
   * Whether guests may have memory in huge pages. Who has such memory can give pages of it back, and if there are none left
   * when the device touches it again, the kernel ends the whole backend (SIGBUS): only for guests that are trusted.
   */
  readonly hugePages?: boolean;
}

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

/** Counts what one guest has. */
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

  /** Throws, and takes nothing, when that would be too many. */
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
