// Messages between the backend's main thread and the threads that serve its guests: plain data.

import type { WaitMode } from '../../../spin/index.ts';
import type { GuestLimits, GuestReport } from '../../../status/index.ts';
import type { HostTransportSpec } from '../../transports/index.ts';
import type { DeviceGrant } from '../policy.ts';

/** What the thread that serves a guest must know of it. */
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

/** What a thread for guests is started with. */
export interface GuestWorkerData {
  /** An eventfd that is signalled when there are messages. */
  readonly wakeFd: number;
  /**
   * Shared memory: the thread stores the number of a guest here before it adopts the guest's
   * descriptors.
   */
  readonly adopted: Int32Array;
  /** Of `HostShare`: of all guests, and of this thread. */
  readonly host: SharedArrayBuffer;
  readonly ownShare: SharedArrayBuffer;
}

/** A thread serves one guest after the other. */
export type ToGuestWorker =
  | { readonly kind: 'serve'; readonly settings: GuestSettings }
  | { readonly kind: 'report'; readonly ask: number }
  /** End the guest. */
  | { readonly kind: 'drop' }
  /** End the guest and the thread. */
  | { readonly kind: 'exit' };

export type FromGuestWorker =
  | { readonly kind: 'report'; readonly ask: number; readonly report: GuestReport | undefined }
  /** `isProtocolError`: the guest was dropped for what it did. */
  | { readonly kind: 'ended'; readonly reason: string; readonly isProtocolError: boolean };
