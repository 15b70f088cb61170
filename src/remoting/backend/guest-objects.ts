// What one guest has at the backend, each with the native object behind it.

import type { Ah, CompletionChannel, Cq, Device, Mr, Pd, Qp, Srq } from '../../verbs/index.ts';
import type { HostMemory } from '../protocol/index.ts';
import type { CompletionSide } from './completion-side.ts';
import type { ReceiveSide } from './receive-side.ts';
import type { SendSide } from './send-side.ts';

/** What has `children` can be closed once it has none: a frontend closes the children first. */
export interface DeviceObject {
  readonly device: Device;
  /** Of all its CQs: what the worker sleeps on. */
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
  /** Regions on it; freed with the last. */
  regions: number;
  readonly handle: () => number;
}

export interface MrObject {
  readonly mr: Mr;
  readonly owner: PdObject;
  readonly memory: MemoryObject;
}

export interface CqObject {
  readonly cq: Cq;
  readonly side: CompletionSide;
  readonly owner: DeviceObject;
  readonly memoryBytes: number;
  children: number;
}

export interface SrqObject {
  readonly srq: Srq;
  readonly side: ReceiveSide;
  readonly memory: HostMemory;
  readonly owner: PdObject;
  readonly operations: number;
  children: number;
}

export interface QpObject {
  readonly qp: Qp;
  readonly send: SendSide;
  readonly receive: ReceiveSide | undefined;
  readonly srq: SrqObject | undefined;
  readonly inline: Mr | undefined;
  readonly memory: HostMemory;
  readonly owner: PdObject;
  readonly sendCq: CqObject;
  readonly receiveCq: CqObject;
  readonly operations: number;
}

export interface AhObject {
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
