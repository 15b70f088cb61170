// The objects of one guest, each with the device's object behind it.

import type { Ah, CompletionChannel, Cq, Device, Mr, Pd, Qp, Srq } from '../../../verbs/index.ts';
import type { HostMemory } from '../../protocol/index.ts';
import type { GuestCompletionQueue } from '../queues/guest-completion-queue.ts';
import type { GuestReceiveQueue } from '../queues/guest-receive-queue.ts';
import type { GuestSendQueue } from '../queues/guest-send-queue.ts';

/**
 * An object with `children` can be closed once it has none: a frontend closes the children first.
 */
export interface DeviceObject {
  readonly device: Device;
  /** The channel of all its CQs, on which the thread sleeps. */
  readonly channel: CompletionChannel;
  readonly handle: () => number;
  children: number;
}

export interface PdObject {
  readonly pd: Pd;
  readonly owner: DeviceObject;
  readonly lkeys: Set<number>;
  readonly addressHandles: Set<number>;
  children: number;
}

export interface MemoryObject {
  readonly memory: HostMemory;
  /** Regions on it; the memory is freed with the last one. */
  regions: number;
  readonly handle: () => number;
}

interface MrObject {
  readonly mr: Mr;
  /** Keys that open it to one QP, until they are revoked or it is closed. */
  readonly grants: Set<number>;
  readonly owner: PdObject;
  readonly memory: MemoryObject;
}

export interface CqObject {
  readonly cq: Cq;
  readonly queue: GuestCompletionQueue;
  readonly owner: DeviceObject;
  readonly memoryBytes: number;
  children: number;
}

export interface SrqObject {
  readonly srq: Srq;
  readonly queue: GuestReceiveQueue;
  readonly memory: HostMemory;
  readonly owner: PdObject;
  readonly operations: number;
  children: number;
}

export interface QpObject {
  readonly qp: Qp;
  readonly send: GuestSendQueue;
  readonly receive: GuestReceiveQueue | undefined;
  readonly srq: SrqObject | undefined;
  readonly inline: Mr | undefined;
  readonly memory: HostMemory;
  readonly owner: PdObject;
  readonly sendCq: CqObject;
  readonly receiveCq: CqObject;
  readonly operations: number;
}

interface AhObject {
  readonly ah: Ah;
  readonly owner: PdObject;
}

export interface GuestKinds {
  readonly device: DeviceObject;
  readonly pd: PdObject;
  readonly memory: MemoryObject;
  readonly mr: MrObject;
  readonly cq: CqObject;
  readonly srq: SrqObject;
  readonly qp: QpObject;
  readonly ah: AhObject;
}
