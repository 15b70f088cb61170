// Everything that the backend keeps for one guest: its objects, what it has used, its rings, and events on their way to it.

import { UsageError } from '../../errors.ts';
import type { GuestLimits } from '../../status/index.ts';
import { type Cq, type Device, ReceiveBatch, SendBatch, type Srq } from '../../verbs/index.ts';
import type { HostTransport } from '../protocol/index.ts';
import { eventKinds } from '../protocol/index.ts';
import type { CompletionSide } from './completion-side.ts';
import type { GuestKinds } from './guest-objects.ts';
import { ObjectTable } from './object-table.ts';
import { type DeviceGrant, Quota } from './policy.ts';
import { POST_ROWS } from './posted-queue.ts';
import type { ReceiveSide } from './receive-side.ts';
import { SendSide } from './send-side.ts';
import { TagTable } from './tag-table.ts';

/** An event on its way to a guest. */
export interface GuestEvent {
  readonly kind: number;
  readonly device: number;
  /** The handle of the CQ or SRQ, the number of the QP or of the port. */
  readonly subject: number;
  readonly text: string;
}

/** A guest that does not fetch its events loses the oldest. */
const MAX_EVENTS = 256;

export interface GuestStateOptions {
  readonly transport: HostTransport;
  readonly limits: GuestLimits;
  readonly hugePages: boolean;
  readonly grants: readonly DeviceGrant[];
  readonly openDevice: (grant: DeviceGrant) => Device;
  /** So that the thread can sleep on the devices' events. */
  readonly onDevice: (device: GuestKinds['device']) => void;
  readonly onDeviceClosing: (device: GuestKinds['device']) => void;
  /** An event was added. */
  readonly onEvent: () => void;
  /** Completions are there for a guest that waits for them. */
  readonly onCompletions: () => void;
  /** And for one that polls, and sleeps for a moment. */
  readonly onNap: () => void;
}

export class GuestState implements Disposable {
  readonly transport: HostTransport;
  readonly quota: Quota;
  readonly objects = new ObjectTable<GuestKinds>();
  readonly tags = new TagTable();
  readonly sends: SendSide[] = [];
  readonly receives: ReceiveSide[] = [];
  readonly completionSides: CompletionSide[] = [];
  readonly devices = new Set<GuestKinds['device']>();
  readonly options: GuestStateOptions;
  /** So that events name the object as the guest knows it. */
  readonly handles = new Map<Cq | Srq, number>();
  readonly #batches = new Map<string, SendBatch | ReceiveBatch>();
  #events: GuestEvent[] = [];
  label = '';

  constructor(options: GuestStateOptions) {
    this.options = options;
    this.transport = options.transport;
    this.quota = new Quota(options.limits);
  }

  grant(name: string): DeviceGrant {
    const grant = this.options.grants.find((candidate) => candidate.name === name);
    if (grant === undefined) throw new UsageError(`open ${name}: the backend has no such device for this guest`);
    return grant;
  }

  addEvent(event: GuestEvent): void {
    if (this.#events.length === MAX_EVENTS) this.#events.shift();
    this.#events.push(event);
    this.options.onEvent();
  }

  takeEvents(): readonly GuestEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** A QP that the backend gives up. */
  addQpFatal(device: number, qpNumber: number, reason: string): void {
    this.addEvent({ kind: eventKinds.qpFatal, device, subject: qpNumber, text: reason });
  }

  /** Private rows to post from, shared by all queues of this guest: only one posts at a time. */
  sendBatch(maxSge: number): SendBatch {
    const key = `send ${maxSge}`;
    const batch = (this.#batches.get(key) as SendBatch | undefined) ?? new SendBatch({ capacity: POST_ROWS, maxSge });
    this.#batches.set(key, batch);
    return batch;
  }

  receiveBatch(maxSge: number): ReceiveBatch {
    const key = `receive ${maxSge}`;
    const found = this.#batches.get(key) as ReceiveBatch | undefined;
    const batch = found ?? new ReceiveBatch({ capacity: POST_ROWS, maxSge });
    this.#batches.set(key, batch);
    return batch;
  }

  addQueue(queue: SendSide | ReceiveSide): void {
    if (queue instanceof SendSide) this.sends.push(queue);
    else this.receives.push(queue);
  }

  removeQueue(queue: SendSide | ReceiveSide): void {
    this.tags.remove(queue);
    const all: (SendSide | ReceiveSide)[] = queue instanceof SendSide ? this.sends : this.receives;
    const index = all.indexOf(queue);
    if (index >= 0) all.splice(index, 1);
  }

  /** Devices close what was made on them; the transport closes the memory behind it. */
  close(): void {
    for (const { device } of this.devices) device.close();
    this.devices.clear();
    for (const side of this.completionSides) side.close();
    for (const batch of this.#batches.values()) batch.close();
    this.#batches.clear();
    this.transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
