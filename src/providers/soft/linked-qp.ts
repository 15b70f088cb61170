// A queue pair whose peer is at the other end of a link: messages go as frames, in order.

import { MillraceError, UnsupportedError } from '../../errors.ts';
import type { QpSpec, RemoteWindow } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import { frameType, frameTypes, headerRow } from './frame.ts';
import type { FrameHandler, Link } from './link.ts';
import type { Pieces } from './pieces.ts';
import { type QpOwner, SoftQp } from './qp.ts';
import { Requester, type RequesterOwner } from './requester.ts';
import { Responder, type ResponderOwner } from './responder.ts';

/** What the shm wire adds to a link: the peer's memory. */
export interface DirectAccess {
  execute(words: Uint32Array, row: number, local: Pieces): boolean;
  isMapped(rkey: number): boolean;
  map(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow>;
  readonly doorbellFd: number;
}

export class LinkedQp extends SoftQp implements FrameHandler, RequesterOwner, ResponderOwner {
  protected override readonly requester: Requester;
  protected override readonly responder: Responder;
  readonly #owner: QpOwner<LinkedQp>;
  #link: Link | undefined;
  #direct: DirectAccess | undefined;
  #isLossy = false;
  /** It is in error because it refused a request, and tells its peer. */
  #hasRefused = false;
  /** It has answers that will not go out any more. */
  #mustTell = false;

  constructor(owner: QpOwner<LinkedQp>, number: number, pd: object, spec: QpSpec) {
    super(owner, number, pd, spec);
    if (spec.type !== 'RC') throw new UnsupportedError(`a ${spec.type} queue pair: this wire has RC only`);
    this.#owner = owner;
    this.requester = new Requester(this, spec.sendCq as SoftCq, spec);
    this.responder = new Responder(this, spec.receiveCq as SoftCq, this.queue);
  }

  get isLossy(): boolean {
    return this.#isLossy;
  }

  get link(): Link | undefined {
    return this.#link;
  }

  override get isConnected(): boolean {
    return this.#link !== undefined;
  }

  override get mayReceive(): boolean {
    return this.#link?.mayReceive ?? false;
  }

  override get heldUntilNs(): number {
    return this.#link?.heldUntilNs ?? 0;
  }

  /** Whether requests wait for a link. */
  get needsLink(): boolean {
    return this.#link === undefined && this.requester.count > 0;
  }

  override pump(nowNs: number): boolean {
    return this.#link?.pump(nowNs) ?? false;
  }

  override get owesAck(): boolean {
    return this.#link !== undefined && this.responder.owesAck;
  }

  override acknowledge(nowNs: number): boolean {
    return this.#link?.pump(nowNs, true) ?? false;
  }

  /** The peer is connected. */
  attach(link: Link, isLossy: boolean, direct: DirectAccess | undefined): void {
    this.#link = link;
    this.#isLossy = isLossy;
    this.#direct = direct;
    this.#owner.kick(this);
  }

  onHeader(header: Uint32Array, into: Pieces): boolean {
    const type = frameType(header);
    if (type < frameTypes.ack) return this.#acceptsRequests() && this.responder.onHeader(header, into);
    if (type !== frameTypes.readResponse || this.state === 'ERR') return false;
    return this.requester.onReadResponse(header[headerRow.sequence], header[headerRow.payloadBytes], into);
  }

  onFrame(header: Uint32Array, isIntact: boolean): void {
    const type = frameType(header);
    const sequence = header[headerRow.sequence];
    if (this.state === 'ERR') return;
    let problem: string | undefined;
    if (type < frameTypes.ack) this.responder.onFrame(header, isIntact);
    else if (type === frameTypes.ack) problem = this.requester.onAck(sequence);
    else if (type === frameTypes.nak) {
      const imm = header[headerRow.imm];
      problem = this.requester.onNak(sequence, imm & 0xff, imm >>> 8);
    } else if (type === frameTypes.readResponse) {
      if (isIntact) this.requester.onReadDone(sequence);
      else this.requester.onCorruptAnswer();
    } else if (type === frameTypes.ackRequest) {
      this.responder.ackAll();
    } else {
      this.requester.onAtomicResponse(sequence, header[headerRow.operandA], header[headerRow.operandA + 1]);
    }
    if (problem !== undefined) this.onBroken(`the peer sent ${problem}`);
  }

  nextFrame(header: Uint32Array, payload: Pieces, mayAckAlone: boolean): boolean {
    if (this.responder.nextFrame(header, payload, mayAckAlone || this.requester.unsent > 0)) return true;
    return this.state === 'RTS' && this.requester.nextFrame(header, payload);
  }

  get sparesAcks(): boolean {
    return this.#link?.delaysAcks === true;
  }

  onClosing(): void {
    this.responder.ackAll();
  }

  onBroken(reason: string): void {
    if (this.state === 'ERR' || this.state === 'RESET') {
      this.disconnect();
      return;
    }
    this.requester.failUnanswered();
    this.fail(reason);
    this.disconnect();
  }

  /**
   * A request arrives in a QP that is in error: the peer must not wait for an answer, unless one is
   * on its way.
   */
  #acceptsRequests(): boolean {
    if (this.isReady) return true;
    if (!this.#hasRefused) this.disconnect();
    return false;
  }

  protected override onFailing(): void {
    this.#hasRefused = this.responder.isRefusing;
    this.#mustTell = !this.#hasRefused && this.responder.dropAnswers();
  }

  protected override onFailed(): void {
    // Refusals still go out; a peer that waits for another answer learns from the end of the link.
    if (this.#mustTell) this.disconnect();
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

  override async mapRemote(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow> {
    if (this.#link === undefined) {
      throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `map memory of ${this.peer}: it is not connected yet`);
    }
    return this.#direct === undefined
      ? super.mapRemote(rkey, address, sizeBytes)
      : this.#direct.map(rkey, address, sizeBytes);
  }

  override get doorbellFd(): number | undefined {
    return this.#direct?.doorbellFd;
  }

  protected override disconnect(): void {
    const link = this.#link;
    this.#link = undefined;
    this.#direct = undefined;
    link?.close();
    this.#owner.abandon(this);
  }
}
