// What a backend says about itself and its guests: plain data, for commands, metrics and the messages between its threads.

import type { WaitMode } from './adaptive-wait.ts';
import type { SessionCounts } from './guest-session.ts';
import type { HostTransportSpec } from './host-transports.ts';
import type { DeviceGrant, GuestLimits } from './policy.ts';

/** What the thread of a guest knows of it. */
export interface GuestReport {
  /** What the guest calls itself; '' when it did not say. */
  readonly label: string;
  readonly counts: Readonly<SessionCounts>;
  /** What it has, by the names of the limits. */
  readonly used: Readonly<Record<keyof GuestLimits, number>>;
  readonly objects: number;
  readonly turns: number;
  /** How often the thread went to sleep, and what waits take on average. */
  readonly sleeps: number;
  readonly averageWaitNs: number;
  readonly cpuSeconds: number;
}

export interface GuestStatus extends GuestReport {
  readonly id: number;
  /** `pid 4711 of uid 1000`, say. */
  readonly peer: string;
  readonly connectedMs: number;
  /** Since the last status, or since it came. */
  readonly perSecond: { readonly calls: number; readonly posted: number; readonly completions: number };
}

export interface BackendStatus {
  readonly socketPath: string;
  readonly devices: readonly string[];
  readonly limits: GuestLimits;
  readonly maxGuests: number;
  readonly guests: readonly GuestStatus[];
  /** So far. */
  readonly accepted: number;
  readonly refused: number;
  /** Guests that were dropped because they broke the rules. */
  readonly dropped: number;
}

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
