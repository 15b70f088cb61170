// A queue pair: its state machine, posting, and the name of its peer.

import { UsageError } from '../errors.ts';
import { access } from './access.ts';
import type { CompletionBatch } from './completion.ts';
import { CompletionError } from './completion-error.ts';
import type { Cq } from './cq.ts';
import { checkCount } from './limits.ts';
import { VerbsObject } from './object.ts';
import type { Pd } from './pd.ts';
import type { DeviceAttributes, ProviderQp, QpSpec, RemoteWindow } from './provider.ts';
import { checkStep, type QpAttributes, type QpState, type QpType } from './qp-state.ts';
import type { Srq } from './srq.ts';
import type { ReceiveBatch, SendBatch } from './work-request.ts';

export interface QpOptions {
  readonly type?: QpType;
  readonly sendCq: Cq;
  /** Default: the send CQ. */
  readonly receiveCq?: Cq;
  readonly srq?: Srq;
  readonly sendRequests?: number;
  readonly receiveRequests?: number;
  readonly maxSge?: number;
  readonly maxInlineBytes?: number;
  readonly signalAll?: boolean;
}

export function qpSpec(options: QpOptions, limits: DeviceAttributes): QpSpec {
  const { type = 'RC', sendCq, receiveCq = sendCq, srq, signalAll = false } = options;
  const { sendRequests = 128, receiveRequests = 128, maxSge = 4, maxInlineBytes = 64 } = options;
  checkCount('send requests', sendRequests, 1, limits.maxQpRequests);
  checkCount('receive requests', receiveRequests, 1, limits.maxQpRequests);
  checkCount('scatter-gather entries', maxSge, 1, limits.maxSge);
  checkCount('inline bytes', maxInlineBytes, 0, limits.maxInlineBytes);
  const queues = { sendCq: sendCq.provided, receiveCq: receiveCq.provided, ...(srq && { srq: srq.provided }) };
  return { type, ...queues, sendRequests, receiveRequests, maxSge, maxInlineBytes, signalAll };
}

export class Qp extends VerbsObject {
  readonly pd: Pd;
  readonly type: QpType;
  readonly sendCq: Cq;
  readonly receiveCq: Cq;
  readonly sendRequests: number;
  readonly receiveRequests: number;
  readonly maxInlineBytes: number;
  readonly #qp: ProviderQp;
  readonly #srq: Srq | undefined;
  /**
   * The state after the last step. A device by itself only moves a QP to ERR or SQE, where posting
   * is allowed.
   */
  #reached: QpState = 'RESET';

  constructor(pd: Pd, qp: ProviderQp, options: QpOptions, spec: QpSpec) {
    const { sendCq, receiveCq = sendCq, srq } = options;
    super([...new Set<VerbsObject>([pd, sendCq, receiveCq]), ...(srq === undefined ? [] : [srq])]);
    this.pd = pd;
    this.type = spec.type;
    this.sendCq = sendCq;
    this.receiveCq = receiveCq;
    this.sendRequests = spec.sendRequests;
    this.receiveRequests = spec.receiveRequests;
    this.maxInlineBytes = spec.maxInlineBytes;
    this.#qp = qp;
    this.#srq = srq;
  }

  get provided(): ProviderQp {
    this.checkOpen();
    return this.#qp;
  }

  get number(): number {
    return this.#qp.number;
  }

  /** The current state. A device may have to be asked, so this is not for hot loops. */
  get state(): QpState {
    return this.#qp.state;
  }

  /** The peer, for messages. */
  get peer(): string {
    return this.#qp.peer;
  }

  /**
   * One step of the QP state machine. Throws without changing anything when the step or an
   * attribute is wrong.
   */
  modify(to: QpState, attributes: QpAttributes = {}): void {
    this.checkOpen();
    checkStep(this.type, this.#qp.state, to, attributes);
    this.#qp.modify(to, attributes);
    this.#reached = to;
  }

  /** The step from RESET, which needs nothing of the peer. */
  init(flags: number = access.localWrite | access.remoteWrite | access.remoteRead | access.remoteAtomic): void {
    this.modify('INIT', this.type === 'RC' ? { portNumber: 1, access: flags } : { portNumber: 1, qkey: 0 });
  }

  /** Posts all rows, or as many as the queue has room for; returns how many were taken. */
  postSend(batch: SendBatch): number {
    this.checkOpen();
    if (isBeforeRts(this.#reached) && isBeforeRts(this.#qp.state)) {
      throw new UsageError(`post to the send queue of QP ${this.number}: it is in ${this.#reached}, not in RTS yet`);
    }
    return this.#qp.postSend(batch);
  }

  postReceive(batch: ReceiveBatch): number {
    this.checkOpen();
    if (this.#srq !== undefined) throw new UsageError(`QP ${this.number} receives from an SRQ: post to that`);
    if (this.#reached === 'RESET') throw new UsageError(`post a receive to QP ${this.number}: it is in RESET`);
    return this.#qp.postReceive(batch);
  }

  /** Maps a region of the peer into this process, to be written in place, where the wire can. */
  mapRemote(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow> {
    this.checkOpen();
    return this.#qp.mapRemote(rkey, address, sizeBytes);
  }

  /**
   * Rung by the peer through the window that `mapRemote` gave it: for epoll, edge-triggered, so
   * that it need not be read. Undefined where the wire maps nothing.
   */
  get doorbellFd(): number | undefined {
    this.checkOpen();
    return this.#qp.doorbellFd;
  }

  /** Throws a CompletionError unless the completion succeeded. */
  throwIfFailed(batch: CompletionBatch, index: number): void {
    if (batch.status(index) !== 0) throw new CompletionError(batch.toCompletion(index), this);
  }

  protected override release(): void {
    this.#qp.close();
  }
}

function isBeforeRts(state: QpState): boolean {
  return state === 'RESET' || state === 'INIT' || state === 'RTR';
}
