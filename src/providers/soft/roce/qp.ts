// A queue pair on the roce wire: requests and answers as packets, to and from one peer (RC).

import { UsageError } from '../../../errors.ts';
import type { CopyList, SharedMemory } from '../../../native/index.ts';
import type { Gid, QpAttributes, QpSpec, QpState, SendBatch } from '../../../verbs/index.ts';
import type { SoftCq } from '../completion-queue.ts';
import { type QpOwner, SoftQp } from '../qp.ts';
import { AckDelay } from './ack-delay.ts';
import type { Destination } from './address-book.ts';
import { Identifications } from './identification.ts';
import { operations } from './opcode.ts';
import type { Packet } from './packet.ts';
import { RoceRequester, type RoceRequesterOwner } from './requester.ts';
import { RoceResponder, type RoceResponderOwner } from './responder.ts';
import type { Transmitter } from './transmitter.ts';

/** What a QP needs of its wire. */
export interface RocePort {
  readonly gid: Gid;
  readonly transmitter: Transmitter;
  readonly copies: CopyList;
  /** The largest path MTU that fits. */
  readonly mtu: number;
  /** As of this turn. */
  readonly nowNs: number;
  /** Takes the time for this turn. */
  look(): void;
  take(gid: Gid): Destination;
  release(destination: Destination): void;
  /** Kicks the QP once the transmitter has room again. */
  waitForRoom(qp: RoceQp): void;
  /** Calls `giveUp` at the next occasion. */
  waitForReply(qp: RoceQp): void;
}

/** What both kinds of QPs on this wire do. */
export abstract class RoceQp extends SoftQp {
  protected readonly port: RocePort;

  protected constructor(owner: QpOwner<RoceQp>, port: RocePort, number: number, pd: object, spec: QpSpec) {
    super(owner, number, pd, spec);
    this.port = port;
  }

  /**
   * A packet for this QP, whole and decoded. `source` is where in the slab its sender's address is.
   */
  abstract onPacket(packet: Packet, identification: number, slab: SharedMemory, source: number): boolean;

  /** All packets of a batch are in. True when it should be pumped. */
  onBatch(): boolean {
    return true;
  }

  /** No reply was posted meanwhile: an acknowledgement that waited for one goes now. */
  giveUp(): void {}

  override get mayReceive(): boolean {
    return false;
  }

  override get heldUntilNs(): number {
    return 0;
  }

  protected override checkAttributes({ pathMtu }: QpAttributes): void {
    if (pathMtu === undefined || pathMtu <= this.port.mtu) return;
    throw new UsageError(
      `a path MTU of ${pathMtu}: the network here carries ${this.port.mtu} at most; raise the interface's MTU, or ask for less`,
    );
  }
}

export class RoceRcQp extends RoceQp implements RoceRequesterOwner, RoceResponderOwner {
  protected override readonly requester: RoceRequester;
  protected override readonly responder: RoceResponder;
  readonly #owner: QpOwner<RoceQp>;
  readonly #timerKey = {};
  readonly #ackDelay = new AckDelay();
  #identifications = new Identifications();
  #destination: Destination | undefined;
  #destQp = 0;
  #mtu = 1024;
  /** When the timer is set for; 0 when it is not set. */
  #wakeNs = 0;

  constructor(owner: QpOwner<RoceQp>, port: RocePort, number: number, pd: object, spec: QpSpec) {
    super(owner, port, number, pd, spec);
    this.#owner = owner;
    this.requester = new RoceRequester(this, spec.sendCq as SoftCq, spec);
    this.responder = new RoceResponder(this, spec.receiveCq as SoftCq, this.queue);
  }

  get mtu(): number {
    return this.#mtu;
  }

  get destQp(): number {
    return this.#destQp;
  }

  get destination(): Destination {
    if (this.#destination === undefined) throw new Error(`QP ${this.number} has no peer`);
    return this.#destination;
  }

  get nowNs(): number {
    return this.port.nowNs;
  }

  override get isConnected(): boolean {
    return this.#destination !== undefined;
  }

  override modify(to: QpState, attributes: QpAttributes): void {
    const { path, destQpNumber, pathMtu } = attributes;
    this.checkAttributes(attributes);
    if (this.state === 'INIT' && to === 'RTR' && path !== undefined && destQpNumber !== undefined) {
      this.#destination = this.port.take(path.gid);
      this.#destQp = destQpNumber;
      this.#mtu = pathMtu ?? 1024;
      this.#identifications = new Identifications();
    }
    super.modify(to, attributes);
  }

  override onPacket(packet: Packet, identification: number, slab: SharedMemory, source: number): boolean {
    if (!this.isReady || !this.#isFromPeer(slab, source) || !this.#identifications.accepts(identification))
      return false;
    const { opcode, psn } = packet;
    const { copies } = this.port;
    if (opcode <= operations.readRequest || opcode >= operations.compareSwap) {
      this.responder.onRequest(packet, copies, slab);
    } else if (opcode === operations.acknowledge) {
      this.requester.onAcknowledge(psn, packet.syndrome);
    } else if (opcode === operations.atomicAcknowledge) {
      this.requester.onAtomicAcknowledge(psn, packet.originalLow, packet.originalHigh);
    } else {
      this.requester.onReadResponse(psn, packet.payloadBytes, copies, slab, packet.payloadOffset);
    }
    return true;
  }

  override onBatch(): boolean {
    if (!this.responder.owesOnlyAck || !this.isReady) return true;
    const mayWait = this.#ackDelay.begin(this.port.nowNs);
    this.port.waitForReply(this);
    return !mayWait || this.requester.unsent > 0;
  }

  override giveUp(): void {
    this.#ackDelay.giveUp();
    if (this.responder.owesOnlyAck) this.#owner.kick(this);
  }

  override postSend(batch: SendBatch): number {
    this.port.look();
    this.#ackDelay.reply(this.port.nowNs);
    return super.postSend(batch);
  }

  /** Any host can send packets with this QP's number, so the source address is checked. */
  #isFromPeer(slab: SharedMemory, source: number): boolean {
    if (this.#destination === undefined) return false;
    const { words } = this.#destination;
    const at = (source + (words.length === 1 ? 4 : 8)) / 4;
    for (let word = 0; word < words.length; word++) {
      if (slab.words[at + word] !== (words[word] | 0)) return false;
    }
    return true;
  }

  override pump(): boolean {
    if (this.#destination === undefined) return false;
    this.port.look();
    const { transmitter } = this.port;
    this.responder.transmit(transmitter);
    if (this.isReady) this.requester.transmit(transmitter);
    if (transmitter.isBlocked) this.port.waitForRoom(this);
    return false;
  }

  /** One timer for all purposes, set anew only when it must go off earlier. */
  wakeAt(ns: number): void {
    if (ns === Number.POSITIVE_INFINITY || (this.#wakeNs !== 0 && this.#wakeNs <= ns)) return;
    this.#wakeNs = ns;
    this.#owner.schedule(this.#timerKey, Math.max(0, ns - this.port.nowNs), () => {
      this.#wakeNs = 0;
      this.port.look();
      this.requester.tick();
      this.#owner.kick(this);
    });
  }

  protected override onFailing(): void {
    // Listeners may close memory that was about to be written.
    this.port.copies.run();
    this.#owner.unschedule(this.#timerKey);
    this.#wakeNs = 0;
  }

  /** Refusals still go out. */
  protected override onFailed(): void {
    this.#owner.kick(this);
  }

  protected override disconnect(): void {
    this.#owner.unschedule(this.#timerKey);
    this.#wakeNs = 0;
    if (this.#destination !== undefined) this.port.release(this.#destination);
    this.#destination = undefined;
    this.#owner.abandon(this);
  }
}
