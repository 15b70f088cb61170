// A soft queue pair: a requester and a responder over one link, and the states they are in.

import { MillraceError, UnsupportedError, UsageError } from '../../errors.ts';
import {
  access as accessBits,
  gidBytes,
  type PathTo,
  type ProviderQp,
  type QpAttributes,
  type QpSpec,
  type QpState,
  type ReceiveBatch,
  type RemoteWindow,
  type SendBatch,
} from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import type { FaultPlan } from './fault-plan.ts';
import { frameType, frameTypes, headerRow } from './frame.ts';
import type { FrameHandler, Link } from './link.ts';
import type { Pieces } from './pieces.ts';
import { ReceiveQueue } from './receive-queue.ts';
import type { RegionTable } from './region.ts';
import { Requester, type RequesterOwner } from './requester.ts';
import { Responder, type ResponderOwner } from './responder.ts';

/** The device, as its QPs see it. */
export interface QpOwner {
  readonly regions: RegionTable;
  readonly faults: FaultPlan | undefined;
  /** Starts looking for the peer. */
  establish(qp: SoftQp): void;
  /** Lets go of the QP's link and of the search for one. */
  abandon(qp: SoftQp): void;
  /** The link has something to send. */
  kick(qp: SoftQp): void;
  schedule(key: object, ns: number, action: () => void): void;
  unschedule(key: object): void;
  fatal(qp: SoftQp, reason: string): void;
  /** Some peer may reach less than before. */
  revoked(): void;
  remove(qp: SoftQp): void;
}

/** What the shm wire adds to a link: the peer's memory. */
export interface DirectAccess {
  execute(words: Uint32Array, row: number, local: Pieces): boolean;
  isMapped(rkey: number): boolean;
  map(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow>;
}

/** Where the peer's QP is: what `path` and `destQpNumber` said. */
export interface PeerName {
  readonly path: PathTo;
  readonly qpNumber: number;
}

export class SoftQp implements ProviderQp, FrameHandler, RequesterOwner, ResponderOwner {
  readonly number: number;
  readonly pd: object;
  readonly spec: QpSpec;
  readonly #owner: QpOwner;
  readonly #requester: Requester;
  readonly #responder: Responder;
  readonly #queue: ReceiveQueue;
  readonly #isShared: boolean;
  /** How long to look for the peer, from the first request on: what the retries would take. 0 is for ever. */
  patienceNs = 0;
  #state: QpState = 'RESET';
  #access = 0;
  #peer: PeerName | undefined;
  #link: Link | undefined;
  #direct: DirectAccess | undefined;
  #isLossy = false;
  /** It is in error because it refused a request, and says so to its peer. */
  #hasRefused = false;
  #posted = 0;

  constructor(owner: QpOwner, number: number, pd: object, spec: QpSpec) {
    this.#owner = owner;
    this.number = number;
    this.pd = pd;
    this.spec = spec;
    this.#isShared = spec.srq !== undefined;
    this.#queue = (spec.srq as ReceiveQueue | undefined) ?? new ReceiveQueue(pd, spec.receiveRequests, spec.maxSge);
    this.#requester = new Requester(this, spec.sendCq as SoftCq, spec);
    this.#responder = new Responder(this, spec.receiveCq as SoftCq, this.#queue);
  }

  get state(): QpState {
    return this.#state;
  }

  get regions(): RegionTable {
    return this.#owner.regions;
  }

  get access(): number {
    return this.#access;
  }

  get isSending(): boolean {
    return this.#state === 'RTS';
  }

  get isLossy(): boolean {
    return this.#isLossy;
  }

  get peerName(): PeerName | undefined {
    return this.#peer;
  }

  get link(): Link | undefined {
    return this.#link;
  }

  get peer(): string {
    if (this.#peer === undefined) return 'nobody';
    const { path, qpNumber } = this.#peer;
    return `QP ${qpNumber} at ${path.gid}${path.lid === undefined ? '' : ` port ${path.lid}`}`;
  }

  /** Whether requests wait for a link. */
  get isWanting(): boolean {
    return this.#link === undefined && this.#requester.count > 0;
  }

  modify(to: QpState, attributes: QpAttributes): void {
    const from = this.#state;
    if (attributes.path !== undefined) checkPath(attributes.path);
    if (attributes.access !== undefined) {
      this.#access = attributes.access & ~accessBits.localWrite;
      this.#owner.revoked();
    }
    if (attributes.minRnrTimer !== undefined) this.#responder.adjust(attributes.minRnrTimer);
    if (from === 'SQD') this.#requester.adjust(definedSettings(attributes));
    if (to === 'RESET') {
      this.#reset();
      return;
    }
    if (to === 'ERR') {
      this.fail('it was moved to ERR by its owner');
      return;
    }
    const { path, destQpNumber, rqPsn = 0, maxDestRdAtomic = 1, minRnrTimer = 0 } = attributes;
    if (from === 'INIT' && to === 'RTR' && path !== undefined && destQpNumber !== undefined) {
      this.#peer = { path, qpNumber: destQpNumber };
      this.#responder.start(rqPsn, maxDestRdAtomic, minRnrTimer);
      this.#state = 'RTR';
      this.#owner.establish(this);
      return;
    }
    if (from === 'RTR' && to === 'RTS') {
      const { sqPsn = 0, maxRdAtomic = 1, retryCount = 7, rnrRetry = 7, timeout = 14 } = attributes;
      this.patienceNs = timeout === 0 ? 0 : (retryCount + 1) * 4096 * 2 ** timeout;
      this.#requester.start({ sqPsn, maxRdAtomic, retryCount, rnrRetry, timeout });
    }
    this.#state = to;
    this.#owner.kick(this);
  }

  postSend(batch: SendBatch): number {
    if (this.#state === 'ERR') {
      const taken = this.#requester.post(batch);
      this.#requester.flush();
      return taken;
    }
    const taken = this.#requester.post(batch);
    const { faults } = this.#owner;
    if (faults?.qpDeathAt !== undefined) {
      this.#posted += taken;
      if (this.#posted >= faults.qpDeathAt) this.fail(`the fault plan ends it at request ${faults.qpDeathAt}`);
    }
    if (this.#requester.unsent > 0) this.#owner.kick(this);
    return taken;
  }

  postReceive(batch: ReceiveBatch): number {
    const taken = this.#queue.post(batch);
    if (this.#state === 'ERR') this.#responder.flush(this.#isShared);
    return taken;
  }

  /** The peer was found. */
  attach(link: Link, isLossy: boolean, direct: DirectAccess | undefined): void {
    this.#link = link;
    this.#isLossy = isLossy;
    this.#direct = direct;
    this.#owner.kick(this);
  }

  onHeader(header: Uint32Array, into: Pieces): boolean {
    const type = frameType(header);
    if (type < frameTypes.ack) return this.#acceptsRequests() && this.#responder.onHeader(header, into);
    if (type !== frameTypes.readResponse || this.#state === 'ERR') return false;
    return this.#requester.onReadResponse(header[headerRow.sequence], header[headerRow.payloadBytes], into);
  }

  onFrame(header: Uint32Array, isIntact: boolean): void {
    const type = frameType(header);
    const sequence = header[headerRow.sequence];
    if (this.#state === 'ERR') return;
    let problem: string | undefined;
    if (type < frameTypes.ack) this.#responder.onFrame(header, isIntact);
    else if (type === frameTypes.ack) problem = this.#requester.onAck(sequence);
    else if (type === frameTypes.nak) {
      const imm = header[headerRow.imm];
      problem = this.#requester.onNak(sequence, imm & 0xff, imm >>> 8);
    } else if (type === frameTypes.readResponse) {
      if (isIntact) this.#requester.onReadDone(sequence);
      else this.#requester.onCorruptAnswer();
    } else {
      this.#requester.onAtomicResponse(sequence, header[headerRow.operandA], header[headerRow.operandA + 1]);
    }
    if (problem !== undefined) this.onBroken(`the peer sent ${problem}`);
  }

  nextFrame(header: Uint32Array, payload: Pieces): boolean {
    if (this.#responder.nextFrame(header, payload)) return true;
    return this.#state === 'RTS' && this.#requester.nextFrame(header, payload);
  }

  onBroken(reason: string): void {
    if (this.#state === 'ERR' || this.#state === 'RESET') {
      this.#unlink();
      return;
    }
    this.#requester.failUnanswered();
    this.fail(reason);
    this.#unlink();
  }

  /** A request arrives in a QP that is in error: the peer must not wait for an answer, unless one is on its way. */
  #acceptsRequests(): boolean {
    if (this.#state === 'RTR' || this.#state === 'RTS' || this.#state === 'SQD') return true;
    if (!this.#hasRefused) this.#unlink();
    return false;
  }

  fail(reason: string): void {
    if (this.#state === 'ERR' || this.#state === 'RESET') return;
    this.#state = 'ERR';
    this.#hasRefused = this.#responder.isRefusing;
    const mustTell = !this.#hasRefused && this.#responder.dropAnswers();
    this.#requester.flush();
    this.#responder.flush(this.#isShared);
    this.#owner.fatal(this, reason);
    // Refusals still go out; whoever waits for anything else learns from the end of the link.
    if (mustTell) this.#unlink();
    else this.#owner.kick(this);
  }

  wait(ns: number, retry: () => void): void {
    this.#owner.schedule(this, ns, () => {
      retry();
      this.#owner.kick(this);
    });
  }

  cancelWait(): void {
    this.#owner.unschedule(this);
  }

  direct(words: Uint32Array, row: number, local: Pieces): boolean {
    return this.#direct?.execute(words, row, local) ?? false;
  }

  isMapped(rkey: number): boolean {
    return this.#direct?.isMapped(rkey) ?? false;
  }

  async mapRemote(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow> {
    if (this.#link === undefined) {
      throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `map memory of ${this.peer}: it is not connected yet`);
    }
    if (this.#direct === undefined) {
      throw new UnsupportedError(`map memory of ${this.peer}: only the shm wire can, when both are on one machine`);
    }
    return this.#direct.map(rkey, address, sizeBytes);
  }

  close(): void {
    this.#reset();
    this.#requester.close();
    this.#owner.remove(this);
  }

  #reset(): void {
    this.#state = 'RESET';
    this.#unlink();
    this.#requester.reset();
    this.#responder.reset(this.#isShared);
    this.#peer = undefined;
    this.#hasRefused = false;
    this.#posted = 0;
  }

  #unlink(): void {
    const link = this.#link;
    this.#link = undefined;
    this.#direct = undefined;
    link?.close();
    this.#owner.abandon(this);
  }
}

/** Before anything has changed: the wire would only find out afterwards. */
function checkPath({ gid, lid = 0 }: PathTo): void {
  gidBytes(gid);
  if (!Number.isInteger(lid) || lid < 0 || lid > 0xffff)
    throw new UsageError(`a path to LID ${lid}: expected 0 to 65535`);
}

function definedSettings(attributes: QpAttributes): { timeout?: number; retryCount?: number; rnrRetry?: number } {
  const { timeout, retryCount, rnrRetry } = attributes;
  return {
    ...(timeout !== undefined && { timeout }),
    ...(retryCount !== undefined && { retryCount }),
    ...(rnrRetry !== undefined && { rnrRetry }),
  };
}
