// What guests may have: who may connect, which devices they see, and how much each of them gets.

import type { SoftDeviceOptions } from '../../providers/index.ts';
import type { GuestLimits } from '../../status/index.ts';

/** A device that guests see. */
export interface DeviceGrant {
  /**
   * The name by which guests open it. Without `soft` it is the name of a device of this machine.
   */
  readonly name: string;
  /** Settings of a soft device that is made for the guest. */
  readonly soft?: SoftDeviceOptions;
}

/**
 * A process has 65530 mappings (vm.max_map_count), and every region and ring is one or two of them:
 * with these and the default number of guests, all guests together cannot use them up.
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
  /**
   * Who may connect by the unix socket: any of these users or groups. Default: the user whom the
   * backend runs as.
   */
  readonly uids?: readonly number[];
  readonly gids?: readonly number[];
  /** Default: all devices of this machine. */
  readonly devices?: readonly DeviceGrant[];
  readonly limits?: Partial<GuestLimits>;
  readonly maxGuests?: number;
  /**
   * Registrations of one process. One that connects more often waits, and longer after a protocol
   * error. Default: 64.
   */
  readonly registrationsPerSecond?: number;
  /**
   * Whether guests may have memory in huge pages. A guest can give such pages back to the kernel,
   * and if none are left when the device touches the memory again, the kernel ends the whole
   * backend (SIGBUS): only for guests that are trusted.
   */
  readonly hugePages?: boolean;
}
