// libibverbs as the addon offers it: calls by handle, and the layouts of what goes in and comes
// out. The ibverbs provider makes objects of it.

import { addon } from './addon.ts';

/** What a handle stands for: enum mr_ibv_kind in native/ibverbs.h. */
export const ibvKinds = { context: 0, pd: 1, mr: 2, channel: 3, cq: 4, srq: 5, qp: 6, ah: 7 } as const;

export type IbvKind = keyof typeof ibvKinds;

export interface IbvDeviceAttributes {
  readonly firmware: string;
  readonly vendorId: number;
  readonly maxQps: number;
  readonly maxQpRequests: number;
  readonly maxSge: number;
  readonly maxCqs: number;
  readonly maxCqEntries: number;
  readonly maxMrs: number;
  readonly maxMrBytes: number;
  readonly maxPds: number;
  readonly maxSrqs: number;
  readonly maxSrqRequests: number;
  readonly maxSrqSge: number;
  /** Reads and atomics of the peer, and of this side, that one QP may have under way. */
  readonly maxRdAtomic: number;
  readonly maxInitRdAtomic: number;
  /** enum ibv_atomic_cap. */
  readonly atomics: number;
  readonly ports: number;
}

export interface IbvPortAttributes {
  /** enum ibv_port_state. */
  readonly state: number;
  readonly lid: number;
  /** enum ibv_mtu. */
  readonly maxMtu: number;
  readonly activeMtu: number;
  readonly maxMessageBytes: number;
  /** Places in the GID table. */
  readonly gids: number;
  /** 1 InfiniBand, 2 Ethernet. */
  readonly linkLayer: number;
}

/** An entry of the GID table, struct ibv_gid_entry: byte offsets. */
export const gidEntry = { gid: 0, index: 16, port: 20, type: 24, bytes: 32 } as const;

/** One step of the QP state machine, in 32-bit words: STEP_… in native/ibverbs-objects.c. */
export const stepWords = {
  mask: 0,
  state: 1,
  portNumber: 2,
  pkeyIndex: 3,
  access: 4,
  qkey: 5,
  pathMtu: 6,
  destQpNumber: 7,
  rqPsn: 8,
  sqPsn: 9,
  maxDestRdAtomic: 10,
  maxRdAtomic: 11,
  minRnrTimer: 12,
  timeout: 13,
  retryCount: 14,
  rnrRetry: 15,
  count: 16,
} as const;

/** The path to a peer: PATH_… in native/ibverbs-objects.c. The GID takes the last four words. */
export const pathWords = { port: 0, lid: 1, isGlobal: 2, gidIndex: 3, hopLimit: 4, gid: 5, count: 9 } as const;

/** Handles are positive; everything that fails returns -errno. Wrong and closed handles throw. */
export interface IbverbsCalls {
  ibvIsAvailable(): boolean;
  ibvDevices(): [name: string, guid: string, transport: number][] | number;
  ibvOpen(name: string): [context: number, eventFd: number] | number;
  ibvQueryDevice(context: number): IbvDeviceAttributes | number;
  ibvQueryPort(context: number, port: number): IbvPortAttributes | number;
  ibvQueryGids(context: number, entries: Uint8Array): number;
  ibvTakeEvent(context: number): [type: number, subject: number, qpNumber: number] | number;
  ibvClose(handle: number, kind: number): number;
  ibvAllocPd(context: number): number;
  ibvRegister(
    pd: number,
    memoryId: number,
    offset: number,
    length: number,
    access: number,
  ): [mr: number, lkey: number, rkey: number, address: number] | number;
  ibvCreateChannel(context: number): [channel: number, fd: number] | number;
  ibvCreateCq(context: number, entries: number, channel: number): number;
  ibvCreateSrq(pd: number, requests: number, maxSge: number): number;
  ibvSrqLimit(srq: number, limit: number): number;
  ibvCreateQp(
    pd: number,
    type: number,
    sendCq: number,
    receiveCq: number,
    srq: number,
    sendRequests: number,
    receiveRequests: number,
    maxSge: number,
    maxInlineBytes: number,
    signalAll: number,
  ): [qp: number, number: number] | number;
  ibvModifyQp(qp: number, step: Uint8Array, path: Uint8Array): number;
  ibvQueryState(qp: number): number;
  ibvCreateAh(pd: number, path: Uint8Array): number;
  /** How many rows were taken; when fewer than given, `lastRefusal` tells why. */
  ibvPostSend(qp: number, memoryId: number, rowWords: number, rows: number): number;
  ibvPostReceive(qp: number, memoryId: number, rowWords: number, rows: number): number;
  ibvPostSrq(srq: number, memoryId: number, rowWords: number, rows: number): number;
  ibvPoll(cq: number, memoryId: number, rows: number): number;
  ibvArm(cq: number, solicitedOnly: number): number;
  ibvTakeCompletionEvent(channel: number): number;
}

export const ibverbs: IbverbsCalls = addon;

/** Why the last post took fewer rows than it was given: -errno. */
export function lastRefusal(): number {
  return addon.scratch[0];
}
