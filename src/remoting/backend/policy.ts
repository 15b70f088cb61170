// What guests may have: who may connect, which devices they see, and how much each of them gets.

import type { SoftDeviceOptions } from '../../providers/index.ts';
import type { GuestLimits } from '../../status/index.ts';
import type { HostAmounts } from './guest/host-share.ts';

/** A device that guests see. */
export interface DeviceGrant {
  /**
   * The name by which guests open it. Without `soft` it is the name of a device of this machine.
   */
  readonly name: string;
  /** Settings of a soft device that is made for the guest. */
  readonly soft?: SoftDeviceOptions;
}

/** The backend's process has limits for all guests together, too: see guest/host-share.ts. */
export const defaultLimits: GuestLimits = {
  devices: 8,
  pds: 128,
  memories: 512,
  regions: 512,
  grants: 1024,
  memoryBytes: 1024 ** 3,
  cqs: 128,
  srqs: 32,
  qps: 256,
  addressHandles: 512,
  operations: 262_144,
  descriptors: 4096,
  mappings: 4096,
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
   * What all guests together may have of the backend's process. Default: most of what the kernel
   * lets it have.
   */
  readonly host?: Partial<HostAmounts>;
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
