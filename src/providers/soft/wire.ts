// What finds peers and makes links to them: `tcp` and `shm` are two of these.

import type { Gid } from '../../verbs/index.ts';
import type { FaultPlan } from './fault-plan.ts';
import type { SoftQp } from './qp.ts';
import type { RegionTable } from './region.ts';

/** The device, as its wire sees it. */
export interface WireHost {
  readonly faults: FaultPlan | undefined;
  readonly regions: RegionTable;
  qp(number: number): SoftQp | undefined;
  kick(qp: SoftQp): void;
  schedule(key: object, ns: number, action: () => void): void;
  unschedule(key: object): void;
  /** Calls back when the descriptor has one of these events, until `unwatch`. */
  watch(fd: number, events: number, handler: (events: number) => void): number;
  unwatch(fd: number, token: number): void;
}

export interface Wire {
  readonly gid: Gid;
  readonly lid: number;
  /** Whether progress needs a look at the descriptors each time. */
  readonly needsEvents: boolean;
  /** The QP is in RTR: find its peer. */
  establish(qp: SoftQp): void;
  /** The QP has requests and no link: a good time to look again, and to give up some day. */
  wanted(qp: SoftQp): void;
  abandon(qp: SoftQp): void;
  /** Some key opens less than before. */
  revoked(): void;
  /** Asks all peers to wake us. False when something has come in already. */
  sleep(): boolean;
  close(): void;
}
