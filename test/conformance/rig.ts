// Two ends, each with a protection domain, queues, a QP and memory: where nearly every test starts.

import assert from 'node:assert/strict';
import {
  type Completion,
  type Cq,
  type Device,
  type Mr,
  type Pd,
  type Qp,
  type QpAttributes,
  type QpOptions,
  ReceiveBatch,
  SendBatch,
} from '../../src/verbs/index.ts';
import { allAccess, type ConnectOptions, connectPair, type GidOf, preferredGid } from './connect.ts';
import { drain } from './wait.ts';

export interface EndOptions extends Omit<QpOptions, 'sendCq' | 'receiveCq' | 'srq'> {
  readonly sizeBytes?: number;
  /** Of the region. */
  readonly access?: number;
  /** Of the QP. */
  readonly qpAccess?: number;
  readonly cqEntries?: number;
  readonly attributes?: QpAttributes;
}

export interface RigOptions {
  readonly left?: EndOptions;
  readonly right?: EndOptions;
  /** Default: both QPs are in RTS. */
  readonly isConnected?: boolean;
  readonly gidOf?: GidOf;
}

type Sge = readonly [lkey: number, address: number, length: number];

export class End implements Disposable {
  readonly device: Device;
  readonly pd: Pd;
  readonly sendCq: Cq;
  readonly receiveCq: Cq;
  readonly qp: Qp;
  readonly mr: Mr;
  readonly #sends = new SendBatch({ capacity: 512, maxSge: 8 });
  readonly #receives = new ReceiveBatch({ capacity: 512, maxSge: 8 });

  constructor(device: Device, options: EndOptions = {}) {
    const { sizeBytes = 65_536, access = allAccess, cqEntries = 1024, qpAccess: _, attributes: __, ...qp } = options;
    this.device = device;
    this.pd = device.createPd();
    this.sendCq = device.createCq({ entries: cqEntries });
    this.receiveCq = device.createCq({ entries: cqEntries, channel: device.createChannel() });
    this.mr = this.pd.allocate({ sizeBytes, access });
    this.qp = this.createQp(qp);
  }

  /** Another QP with the same queues. */
  createQp(options: Omit<QpOptions, 'sendCq' | 'receiveCq'> = {}): Qp {
    return this.pd.createQp({ sendCq: this.sendCq, receiveCq: this.receiveCq, ...options });
  }

  /** A part of this end's region as a scatter-gather entry. */
  at(offset: number, length: number, mr: Mr = this.mr): Sge {
    return [mr.lkey, mr.address + offset, length];
  }

  bytes(offset: number, length: number): Uint8Array {
    return this.mr.bytes.subarray(offset, offset + length);
  }

  text(offset: number, length: number): string {
    return Buffer.from(this.bytes(offset, length)).toString();
  }

  /** Puts text into the region; returns its length. */
  put(offset: number, text: string): number {
    return new TextEncoder().encodeInto(text, this.bytes(offset, text.length)).written;
  }

  /** Posts what `fill` adds, all of it. */
  post(fill: (batch: SendBatch) => unknown, qp: Qp = this.qp): void {
    assert.equal(this.tryPost(fill, qp), this.#sends.count);
  }

  /** Posts and returns how many were taken. */
  tryPost(fill: (batch: SendBatch) => unknown, qp: Qp = this.qp): number {
    this.#sends.clear();
    fill(this.#sends);
    return qp.postSend(this.#sends);
  }

  postReceives(fill: (batch: ReceiveBatch) => unknown, qp: Qp = this.qp): void {
    this.#receives.clear();
    fill(this.#receives);
    assert.equal(qp.postReceive(this.#receives), this.#receives.count);
  }

  receive(wrId: number, offset: number, length: number, qp: Qp = this.qp): void {
    this.postReceives((batch) => batch.receive(wrId).sge(...this.at(offset, length)), qp);
  }

  /** The next completions of the send queue. */
  sent(count = 1): Promise<Completion[]> {
    return drain(this.sendCq, count);
  }

  received(count = 1): Promise<Completion[]> {
    return drain(this.receiveCq, count);
  }

  /** The next completions of the send queue as `wrId:STATUS`. */
  async sentStatuses(count = 1): Promise<string[]> {
    return (await this.sent(count)).map(({ wrId, status }) => `${wrId}:${status}`);
  }

  async receivedStatuses(count = 1): Promise<string[]> {
    return (await this.received(count)).map(({ wrId, status }) => `${wrId}:${status}`);
  }

  [Symbol.dispose](): void {
    this.#sends.close();
    this.#receives.close();
    this.pd.close();
    this.sendCq.close();
    this.receiveCq.close();
  }
}

export class Rig implements Disposable {
  readonly left: End;
  readonly right: End;
  readonly #options: RigOptions;

  static build(pair: { readonly left: Device; readonly right: Device }, options: RigOptions = {}): Rig {
    return new Rig(new End(pair.left, options.left), new End(pair.right, options.right), options);
  }

  private constructor(left: End, right: End, options: RigOptions) {
    this.left = left;
    this.right = right;
    this.#options = options;
    if (options.isConnected ?? true) this.connect();
  }

  /** From RESET to RTS: the QPs of both ends, or another two. */
  connect(left: Qp = this.left.qp, right: Qp = this.right.qp): void {
    connectPair(left, right, this.connectOptions('left'), this.connectOptions('right'));
  }

  connectOptions(which: 'left' | 'right'): ConnectOptions & { access: number } {
    const { gidOf = preferredGid } = this.#options;
    const { qpAccess = allAccess, attributes = {} } = this.#options[which] ?? {};
    return { gidOf, access: qpAccess, attributes };
  }

  [Symbol.dispose](): void {
    this.left[Symbol.dispose]();
    this.right[Symbol.dispose]();
  }
}
