// What stands behind the object model: a provider has devices, a device makes objects. The object
// model checks arguments, states and lifetimes once for all providers; a provider only carries out.

import type { SharedMemory } from '../native/index.ts';
import type { CompletionBatch } from './completion.ts';
import type { Gid } from './gid.ts';
import type { Mtu, PathTo, QpAttributes, QpState, QpType } from './qp-state.ts';
import type { ReceiveBatch, SendBatch } from './work-request.ts';

export interface DeviceInfo {
  readonly name: string;
  readonly provider: string;
  readonly guid: string;
  /** What carries the bytes: `shm`, `tcp`, `RoCEv2`, `InfiniBand`. */
  readonly transport: string;
}

export interface PortInfo {
  readonly number: number;
  readonly state: 'DOWN' | 'INIT' | 'ARMED' | 'ACTIVE';
  readonly lid: number;
  readonly maxMtu: Mtu;
  readonly activeMtu: Mtu;
  /**
   * In the order of the device's table, so that an index means the same to other tools; `::` is an
   * empty entry.
   */
  readonly gids: readonly Gid[];
  /** Of each GID, where the device tells them apart: `RoCE v1`, `RoCE v2`, `IB`. */
  readonly gidTypes?: readonly string[];
  /** The GID to go by unless told otherwise. Default: the first. */
  readonly gidIndex?: number;
  readonly linkLayer: string;
}

export interface DeviceAttributes {
  readonly firmware: string;
  readonly vendorId: number;
  readonly maxQps: number;
  readonly maxQpRequests: number;
  readonly maxSge: number;
  readonly maxInlineBytes: number;
  readonly maxCqs: number;
  readonly maxCqEntries: number;
  readonly maxMrs: number;
  readonly maxMrBytes: number;
  readonly maxPds: number;
  readonly maxSrqs: number;
  readonly maxSrqRequests: number;
  readonly maxRdAtomic: number;
  readonly maxMessageBytes: number;
  /** `none`, `device` (among users of this device) or `global` (with the CPUs, too). */
  readonly atomics: 'none' | 'device' | 'global';
  /** Completions say whether they were solicited (`completionFlags.solicited`). */
  readonly marksSolicited?: boolean;
}

/** An asynchronous event of a device, which no completion tells. */
export type DeviceEvent =
  | { readonly kind: 'qpFatal'; readonly qpNumber: number; readonly reason: string }
  | { readonly kind: 'cqOverrun'; readonly cq: ProviderCq }
  | { readonly kind: 'srqLimit'; readonly srq: ProviderSrq }
  | { readonly kind: 'portChange'; readonly portNumber: number; readonly state: PortInfo['state'] }
  | { readonly kind: 'deviceGone' };

export interface Provider {
  readonly name: string;
  listDevices(): readonly DeviceInfo[];
  /** Only called with a name that `listDevices` gave. */
  openDevice(name: string): ProviderDevice;
}

/**
 * The source of a device's events, for threads that do not return to Node's event loop, which reads
 * it otherwise.
 */
export interface DeviceEventSource {
  /** Readable when `take` has something. */
  readonly fd: number;
  /**
   * Gives the events to the listener. False once the device is gone: then the descriptor stays
   * readable without events.
   */
  take(): boolean;
}

export interface ProviderDevice {
  readonly info: DeviceInfo;
  readonly attributes: DeviceAttributes;
  ports(): readonly PortInfo[];
  onEvent(listener: (event: DeviceEvent) => void): void;
  /** Where events have a descriptor; other devices give events while they are polled. */
  readonly eventSource?: DeviceEventSource;
  /** Packets by what became of them, where there are any. */
  counters?(): Readonly<Record<string, number>>;
  createPd(): ProviderPd;
  createChannel(): ProviderChannel;
  createCq(spec: CqSpec): ProviderCq;
  close(): void;
}

export interface ProviderPd {
  /** Memory for `Pd.allocate`, where only some memory can be registered. Default: any memfd. */
  allocate?(options: { readonly sizeBytes: number; readonly hugePages: boolean }): SharedMemory;
  registerMr(spec: MrSpec): ProviderMr;
  createSrq(spec: SrqSpec): ProviderSrq;
  createQp(spec: QpSpec): ProviderQp;
  /** Where datagrams go, by port 1. Throws UnsupportedError where there is no UD. */
  createAh(path: PathTo): ProviderAh;
  close(): void;
}

export interface ProviderAh {
  /** What rows of UD requests carry in `sendRow.addressHandle`: 32 bits, never 0. */
  readonly handle: number;
  close(): void;
}

export interface MrSpec {
  readonly memory: SharedMemory;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly access: number;
}

export interface ProviderMr {
  readonly lkey: number;
  readonly rkey: number;
  /** The address of the first byte in work requests, here and at the peer. */
  readonly address: number;
  /** A key for one QP's peer alone; undefined access means the region's own. */
  grant(qp: ProviderQp, access: number): number;
  revoke(rkey: number): void;
  close(): void;
}

export interface ProviderChannel {
  /** Readable when `take` may have something. */
  readonly fd: number;
  /** Armed CQs that have had a completion since; they must be armed again. Never blocks. */
  take(): readonly ProviderCq[];
  close(): void;
}

export interface CqSpec {
  readonly entries: number;
  readonly channel?: ProviderChannel;
}

export interface ProviderCq {
  /** Fills the batch from its start; returns how many. */
  poll(batch: CompletionBatch): number;
  /** Asks for one event when the next completion comes. */
  arm(solicitedOnly: boolean): void;
  close(): void;
}

export interface SrqSpec {
  readonly requests: number;
  readonly maxSge: number;
}

export interface ProviderSrq {
  /** Posts all rows, or as many as fit; returns how many were taken. */
  post(batch: ReceiveBatch): number;
  /** One `srqLimit` event when fewer receives than this are left. */
  setLimit(limit: number): void;
  close(): void;
}

export interface QpSpec {
  readonly type: QpType;
  readonly sendCq: ProviderCq;
  readonly receiveCq: ProviderCq;
  readonly srq?: ProviderSrq;
  readonly sendRequests: number;
  readonly receiveRequests: number;
  readonly maxSge: number;
  readonly maxInlineBytes: number;
  /** Every request is signalled, whatever its flags say. */
  readonly signalAll: boolean;
}

export interface ProviderQp {
  readonly number: number;
  /** The current state: a device moves a QP to ERR by itself. */
  readonly state: QpState;
  /** A step that has been checked. All or nothing. */
  modify(to: QpState, attributes: QpAttributes): void;
  /**
   * Posts all rows, or as many as fit; returns how many were taken. Wrong rows throw, and none
   * after them is taken.
   */
  postSend(batch: SendBatch): number;
  postReceive(batch: ReceiveBatch): number;
  /** The peer, for messages. */
  readonly peer: string;
  /**
   * The peer's region in this process, to be written in place; throws UnsupportedError where the
   * wire cannot.
   */
  mapRemote(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow>;
  /**
   * A doorbell, an eventfd that the peer rings by `RemoteWindow.ring` once it has mapped a region
   * of this side. Only for epoll.
   */
  readonly doorbellFd?: number | undefined;
  close(): void;
}

/** Remote memory that is mapped here. */
export interface RemoteWindow extends Disposable {
  readonly memory: SharedMemory;
  /** Of `address` in `memory`. */
  readonly offset: number;
  readonly sizeBytes: number;
  /** False once the peer has revoked it or is gone. */
  readonly isValid: boolean;
  /** Rings the doorbell of the peer's QP. */
  ring(): void;
  close(): void;
}
