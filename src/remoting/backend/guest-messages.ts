// What the monitor of a backend and the threads that serve its guests say to each other: plain data.

import type { WaitMode } from '../../spin/index.ts';
import type { GuestLimits, GuestReport } from '../../status/index.ts';
import type { HostTransportSpec } from '../transports/index.ts';
import type { DeviceGrant } from './policy.ts';

/** Of one guest, for the thread that serves it. */
export interface GuestSettings {
  readonly id: number;
  readonly transport: HostTransportSpec;
  readonly grants: readonly DeviceGrant[];
  readonly limits: GuestLimits;
  readonly hugePages: boolean;
  readonly wait: WaitMode;
  /** A file for all calls of the guest. */
  readonly record?: string;
}

/** What a thread that serves guests is started with. */
export interface GuestWorkerData {
  /** Of an eventfd that says that there are messages. */
  readonly wakeFd: number;
  /** Shared: the thread stores the number of a guest here before it adopts the guest's descriptors. */
  readonly adopted: Int32Array;
}

/** A thread serves one guest after the other. */
export type ToGuestWorker =
  | { readonly kind: 'serve'; readonly settings: GuestSettings }
  | { readonly kind: 'report'; readonly ask: number }
  /** The guest is to be ended. */
  | { readonly kind: 'drop' }
  /** And the thread with it. */
  | { readonly kind: 'exit' };

export type FromGuestWorker =
  | { readonly kind: 'report'; readonly ask: number; readonly report: GuestReport | undefined }
  /** `isBroken`: it was dropped for what it did. */
  | { readonly kind: 'ended'; readonly reason: string; readonly isBroken: boolean };
