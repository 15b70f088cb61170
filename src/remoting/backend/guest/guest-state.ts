// Everything that the backend keeps for one guest: its objects, its quota, its queues, and events
// that it has not fetched.

import { UsageError } from '../../../errors.ts';
import type { GuestLimits, SessionCounts } from '../../../status/index.ts';
import { type Cq, type Device, ReceiveBatch, SendBatch, type Srq } from '../../../verbs/index.ts';
import type { HostTransport } from '../../protocol/index.ts';
import { eventKinds } from '../../protocol/index.ts';
import type { DeviceGrant } from '../policy.ts';
import type { GuestCompletionQueue } from '../queues/guest-completion-queue.ts';
import type { GuestReceiveQueue } from '../queues/guest-receive-queue.ts';
import { POST_ROWS } from '../queues/guest-request-queue.ts';
import { GuestSendQueue } from '../queues/guest-send-queue.ts';
import { TagTable } from '../queues/tag-table.ts';
import type { GuestKinds } from './guest-objects.ts';
import type { HostShare } from './host-share.ts';
import { ObjectTable } from './object-table.ts';
import { Quota } from './quota.ts';

/** A device event that the guest fetches by a call. */
interface GuestEvent {
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
  readonly host: HostShare;
  readonly hugePages: boolean;
  readonly grants: readonly DeviceGrant[];
  readonly counts: SessionCounts;
  readonly openDevice: (grant: DeviceGrant) => Device;
  /** Called for each device that is opened, so that the thread can sleep on its events. */
  readonly onDevice: (device: GuestKinds['device']) => void;
  readonly onDeviceClosing: (device: GuestKinds['device']) => void;
  /** An event was added. */
  readonly onEvent: () => void;
  /** Completions are there for a guest that has armed their queue. */
  readonly onCompletions: () => void;
  /** Completions are there for a guest that naps between its polls. */
  readonly onNap: () => void;
}

export class GuestState implements Disposable {
  readonly transport: HostTransport;
  readonly quota: Quota;
  readonly objects = new ObjectTable<GuestKinds>();
  readonly tags = new TagTable();
  readonly sendQueues: GuestSendQueue[] = [];
  readonly receiveQueues: GuestReceiveQueue[] = [];
  readonly completionQueues: GuestCompletionQueue[] = [];
  readonly devices = new Set<GuestKinds['device']>();
  readonly options: GuestStateOptions;
  /** Handles by object: events name the object by its handle. */
  readonly handles = new Map<Cq | Srq, number>();
  readonly #batches = new Map<string, SendBatch | ReceiveBatch>();
  #events: GuestEvent[] = [];
  label = '';

  constructor(options: GuestStateOptions) {
    this.options = options;
    this.transport = options.transport;
    this.quota = new Quota(options.limits, options.host);
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

  /** A QP that has failed, or that the backend gives up. */
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

  addQueue(queue: GuestSendQueue | GuestReceiveQueue): void {
    if (queue instanceof GuestSendQueue) this.sendQueues.push(queue);
    else this.receiveQueues.push(queue);
  }

  removeQueue(queue: GuestSendQueue | GuestReceiveQueue): void {
    this.tags.remove(queue);
    const all: (GuestSendQueue | GuestReceiveQueue)[] =
      queue instanceof GuestSendQueue ? this.sendQueues : this.receiveQueues;
    const index = all.indexOf(queue);
    if (index >= 0) all.splice(index, 1);
  }

  /** Devices close what was made on them; the transport closes the memory behind it. */
  close(): void {
    for (const { device } of this.devices) device.close();
    this.devices.clear();
    for (const queue of this.completionQueues) queue.close();
    for (const batch of this.#batches.values()) batch.close();
    this.#batches.clear();
    this.transport.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
