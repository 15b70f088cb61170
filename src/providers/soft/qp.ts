// What all soft queue pairs have in common: the QP state machine, their queues, and how they fail.

import { UnsupportedError } from '../../errors.ts';
import {
  access as accessBits,
  type PathTo,
  type ProviderQp,
  type QpAttributes,
  type QpSpec,
  type QpState,
  type ReceiveBatch,
  type RemoteWindow,
  type SendBatch,
} from '../../verbs/index.ts';
import type { FaultPlan } from './fault-plan.ts';
import { ReceiveQueue } from './receive-queue.ts';
import type { RegionTable } from './region.ts';
import { ackTimeoutNs, type RequesterSettings, type RetrySettings } from './retries.ts';
import { type Marked, marks } from './work-list.ts';

/** What a QP needs of its device. */
export interface QpOwner<Qp extends SoftQp> {
  readonly regions: RegionTable;
  readonly faults: FaultPlan | undefined;
  /** Starts to connect the QP to its peer. */
  establish(qp: Qp): void;
  /** Gives up the QP's link, or connecting one. */
  abandon(qp: Qp): void;
  /** The QP has something to send. */
  kick(qp: Qp): void;
  schedule(key: object, ns: number, action: () => void): void;
  unschedule(key: object): void;
  fatal(qp: Qp, reason: string): void;
  /** Some peer may reach less than before. */
  revoked(): void;
  remove(qp: Qp): void;
}

/** The peer's QP, from the attributes `path` and `destQpNumber`. */
interface PeerAddress {
  readonly path: PathTo;
  readonly qpNumber: number;
}

/** The sending half: keeps posted requests until the peer has answered them. */
export interface SendHalf {
  /** Requests that are not completed, and how many of them were never sent. */
  readonly count: number;
  readonly unsent: number;
  /** Takes as many rows as there is room for. */
  post(batch: SendBatch): number;
  start(settings: RequesterSettings): void;
  adjust(settings: Partial<RetrySettings>): void;
  /** Everything left is completed as flushed, in order. */
  flush(): void;
  /** Drops everything without completions. */
  reset(): void;
  close(): void;
}

/** The receiving half: carries out what the peer asks for. */
export interface ReceiveHalf {
  start(rqPsn: number, maxDestRdAtomic: number, minRnrTimer: number): void;
  adjust(minRnrTimer: number): void;
  flush(isShared: boolean): void;
  reset(isShared: boolean): void;
}

export abstract class SoftQp implements ProviderQp, Marked {
  readonly marks = new Uint8Array(marks.count);
  readonly number: number;
  readonly pd: object;
  readonly spec: QpSpec;
  readonly queue: ReceiveQueue;
  protected abstract readonly requester: SendHalf;
  protected abstract readonly responder: ReceiveHalf;
  readonly #owner: QpOwner<this>;
  readonly #isShared: boolean;
  /**
   * How long connecting may take from the first request on: as long as the retries would. 0 is for
   * ever.
   */
  connectTimeoutNs = 0;
  #state: QpState = 'RESET';
  #access = 0;
  #peer: PeerAddress | undefined;
  #posted = 0;

  protected constructor(owner: QpOwner<never>, number: number, pd: object, spec: QpSpec) {
    this.#owner = owner as QpOwner<this>;
    this.number = number;
    this.pd = pd;
    this.spec = spec;
    this.#isShared = spec.srq !== undefined;
    this.queue = (spec.srq as ReceiveQueue | undefined) ?? new ReceiveQueue(pd, spec.receiveRequests, spec.maxSge);
  }

  /** Whether the peer can be reached by now. */
  abstract readonly isConnected: boolean;
  /** Whether a pump is worth trying; loads memory only. */
  abstract readonly mayReceive: boolean;
  /** When a fault plan holds something back, until when. 0: not at all. */
  abstract readonly heldUntilNs: number;
  /** Does what is due. True when it stopped to give other QPs their turn and has more to do. */
  abstract pump(nowNs: number): boolean;
  /** It has an acknowledgement that waits for something to go out with; see `acknowledge`. */
  get owesAck(): boolean {
    return false;
  }

  /** As `pump`, and acknowledgements wait no longer. */
  acknowledge(nowNs: number): boolean {
    return this.pump(nowNs);
  }

  /** It is about to be in error: what is left is flushed next. */
  protected abstract onFailing(): void;
  protected abstract onFailed(): void;
  protected abstract disconnect(): void;

  get state(): QpState {
    return this.#state;
  }

  get regions(): RegionTable {
    return this.#owner.regions;
  }

  get access(): number {
    return this.#access;
  }

  /** Requests may go out now. */
  get isSending(): boolean {
    return this.#state === 'RTS';
  }

  /** Requests of the peer are carried out. */
  get isReady(): boolean {
    return this.#state === 'RTR' || this.#state === 'RTS' || this.#state === 'SQD';
  }

  get peerAddress(): PeerAddress | undefined {
    return this.#peer;
  }

  get peer(): string {
    if (this.#peer === undefined) return 'none';
    const { path, qpNumber } = this.#peer;
    return `QP ${qpNumber} at ${path.gid}${path.lid === undefined ? '' : ` port ${path.lid}`}`;
  }

  modify(to: QpState, attributes: QpAttributes): void {
    const from = this.#state;
    this.checkAttributes(attributes);
    if (attributes.access !== undefined) {
      this.#access = attributes.access & ~accessBits.localWrite;
      this.#owner.revoked();
    }
    if (attributes.minRnrTimer !== undefined) this.responder.adjust(attributes.minRnrTimer);
    if (from === 'SQD') this.requester.adjust(definedSettings(attributes));
    if (to === 'RESET') {
      this.#reset();
      return;
    }
    if (to === 'ERR') {
      this.fail('it was moved to ERR by its owner');
      return;
    }
    if (from === 'INIT' && to === 'RTR') this.#toRtr(attributes);
    if (from === 'RTR' && to === 'RTS') this.#toRts(attributes);
    this.#state = to;
    if (from === 'INIT' && to === 'RTR') this.#owner.establish(this);
    else this.#owner.kick(this);
  }

  /** Checks the attributes, before anything has changed. */
  protected checkAttributes(_attributes: QpAttributes): void {}

  #toRtr({ path, destQpNumber, rqPsn = 0, maxDestRdAtomic = 1, minRnrTimer = 0 }: QpAttributes): void {
    if (path !== undefined && destQpNumber !== undefined) this.#peer = { path, qpNumber: destQpNumber };
    this.responder.start(rqPsn, maxDestRdAtomic, minRnrTimer);
  }

  #toRts({ sqPsn = 0, maxRdAtomic = 1, retryCount = 7, rnrRetry = 7, timeout = 14 }: QpAttributes): void {
    this.connectTimeoutNs = timeout === 0 ? 0 : (retryCount + 1) * ackTimeoutNs(timeout);
    this.requester.start({ sqPsn, maxRdAtomic, retryCount, rnrRetry, timeout });
  }

  postSend(batch: SendBatch): number {
    let taken = 0;
    try {
      taken = this.requester.post(batch);
    } finally {
      // Also when a row was refused: those before it were taken.
      this.#onPosted(taken);
    }
    return taken;
  }

  #onPosted(taken: number): void {
    if (this.#state === 'ERR') {
      this.requester.flush();
      return;
    }
    const { faults } = this.#owner;
    if (faults?.qpDeathAt !== undefined) {
      this.#posted += taken;
      if (this.#posted >= faults.qpDeathAt) this.fail(`the fault plan ends it at request ${faults.qpDeathAt}`);
    }
    if (this.requester.unsent > 0) this.#owner.kick(this);
  }

  postReceive(batch: ReceiveBatch): number {
    const taken = this.queue.post(batch);
    if (this.#state === 'ERR') this.responder.flush(this.#isShared);
    return taken;
  }

  /** Brings the QP to ERR, and flushes what is outstanding. */
  fail(reason: string): void {
    if (this.#state === 'ERR' || this.#state === 'RESET') return;
    this.#state = 'ERR';
    this.onFailing();
    this.requester.flush();
    this.responder.flush(this.#isShared);
    this.#owner.fatal(this, reason);
    this.onFailed();
  }

  get doorbellFd(): number | undefined {
    return undefined;
  }

  mapRemote(_rkey: number, _address: number, _sizeBytes: number): Promise<RemoteWindow> {
    const message = `map memory of ${this.peer}: only the shm wire can, when both are on one machine`;
    return Promise.reject(new UnsupportedError(message));
  }

  close(): void {
    this.#reset();
    this.requester.close();
    this.#owner.remove(this);
  }

  #reset(): void {
    this.#state = 'RESET';
    this.disconnect();
    this.requester.reset();
    this.responder.reset(this.#isShared);
    this.#peer = undefined;
    this.#posted = 0;
  }
}

function definedSettings({ timeout, retryCount, rnrRetry }: QpAttributes): Partial<RetrySettings> {
  return {
    ...(timeout !== undefined && { timeout }),
    ...(retryCount !== undefined && { retryCount }),
    ...(rnrRetry !== undefined && { rnrRetry }),
  };
}
