// What carries the bytes of a device and connects its QPs: `shm`, `tcp` and `roce`.

import type { Gid, Mtu, PathTo, ProviderAh, QpSpec } from '../../verbs/index.ts';
import type { FaultPlan } from './fault-plan.ts';
import type { QpOwner, SoftQp } from './qp.ts';
import type { RegionTable } from './region.ts';

/** What a wire needs of its device. */
export interface WireHost<Qp extends SoftQp> {
  readonly faults: FaultPlan | undefined;
  readonly regions: RegionTable;
  qp(number: number): Qp | undefined;
  kick(qp: Qp): void;
  schedule(key: object, ns: number, action: () => void): void;
  unschedule(key: object): void;
  /** Calls back when the descriptor has one of these events, until `unwatch`. */
  watch(fd: number, events: number, handler: (events: number) => void): number;
  unwatch(fd: number, token: number): void;
}

export interface Wire<Qp extends SoftQp> {
  readonly gid: Gid;
  readonly lid: number;
  /** The largest path MTU that fits. */
  readonly mtu: Mtu;
  /** Whether each connected QP has a link that must be pumped. */
  readonly hasLinks: boolean;
  /** Whether progress must poll the descriptors each time. */
  readonly needsEvents: boolean;
  createQp(owner: QpOwner<Qp>, number: number, pd: object, spec: QpSpec): Qp;
  /** Where datagrams go; throws UnsupportedError where the wire has none. */
  createAh(path: PathTo): ProviderAh;
  /** Takes in what has come for all QPs; a wire with links leaves that to them. */
  receive(): void;
  /** Called before a listener of the program: what was received must be in its place. */
  settle(): void;
  /** After a turn: sends what was held back to go out together. */
  flush(): void;
  /** Packets by what became of them, to find faults. */
  counters(): Readonly<Record<string, number>>;
  /** The QP is in RTR: connect it to its peer. */
  establish(qp: Qp): void;
  /** The QP has requests and no link: from now on connecting it has a time limit. */
  wanted(qp: Qp): void;
  abandon(qp: Qp): void;
  /** Some key opens less than before. */
  revoked(): void;
  /** Asks all peers to wake this device. False when something has come in already. */
  sleep(): boolean;
  close(): void;
}
