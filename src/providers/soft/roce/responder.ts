// The receiving half of a RoCE QP: carries out the peer's requests in the order of their packets,
// each once, and answers.

import type { CopyList, SharedMemory } from '../../../native/index.ts';
import { access, completionOpcodes, completionStatuses } from '../../../verbs/index.ts';
import type { SoftCq } from '../completion-queue.ts';
import { MAX_MESSAGE_BYTES } from '../frame.ts';
import { HeldReceive, type HeldReceiveOwner } from '../held-receive.ts';
import type { ReceiveHalf } from '../qp.ts';
import type { ReceiveQueue } from '../receive-queue.ts';
import type { Region } from '../region.ts';
import { type AtomicResult, AtomicUnit, mayReach, regionOf } from '../remote-access.ts';
import { sequenceDistance } from '../sequence.ts';
import { Answers, type AnswersOwner } from './answers.ts';
import { operations } from './opcode.ts';
import { nakCodes, type Packet, syndromes } from './packet.ts';
import { PiecesCursor } from './pieces-cursor.ts';
import type { Transmitter } from './transmitter.ts';

export type RoceResponderOwner = HeldReceiveOwner & AnswersOwner;

const TWO_32 = 4_294_967_296;
/** Addresses are numbers in JavaScript: beyond 2^53 they would be rounded to another address. */
const MAX_ADDRESS_HIGH = 0x1f_ffff;

export class RoceResponder implements ReceiveHalf {
  readonly #owner: RoceResponderOwner;
  readonly #receive: HeldReceive;
  readonly #answers: Answers;
  readonly #atomics = new AtomicUnit();
  /** Where the message that is arriving goes. */
  readonly #incoming = new PiecesCursor();
  #maxDestRdAtomic = 1;
  #minRnrTimer = 0;
  #message: 'none' | 'send' | 'write' = 'none';
  /**
   * Bytes of the message that have come, and how many there is room for; of a write, how many there
   * will be.
   */
  #placed = 0;
  #room = 0;
  #writeRkey = 0;
  #writeAddress = 0;
  #generation = 0;
  /** A NAK is out: everything is dropped until the packet that it asked for comes. */
  #isNakOut = false;

  constructor(owner: RoceResponderOwner, cq: SoftCq, queue: ReceiveQueue) {
    this.#owner = owner;
    this.#receive = new HeldReceive(owner, cq, queue);
    this.#answers = new Answers(owner);
  }

  start(rqPsn: number, maxDestRdAtomic: number, minRnrTimer: number): void {
    this.#maxDestRdAtomic = maxDestRdAtomic;
    this.#minRnrTimer = minRnrTimer;
    this.#answers.start(rqPsn);
    this.#atomics.start(maxDestRdAtomic);
  }

  adjust(minRnrTimer: number): void {
    this.#minRnrTimer = minRnrTimer;
  }

  /** A request packet; its payload is in `slab` until the copies are run. */
  onRequest(packet: Packet, copies: CopyList, slab: SharedMemory): void {
    const distance = sequenceDistance(packet.psn, this.#answers.expected);
    if (distance !== 0) {
      this.#onUnexpected(packet, distance);
      return;
    }
    this.#isNakOut = false;
    const operation = packet.opcode;
    if (operation < operations.writeFirst) this.#onSend(packet, copies, slab);
    else if (operation < operations.readRequest) this.#onWrite(packet, copies, slab);
    else if (this.#message !== 'none') this.#refuse(nakCodes.invalid, 'the peer left a message unfinished');
    else if (operation === operations.readRequest) this.#onRead(packet, false);
    else this.#onAtomic(packet, copies);
  }

  #onUnexpected(packet: Packet, distance: number): void {
    if (distance > 0) {
      // Packets are missing. They are asked for once; what is under way meanwhile is retransmitted.
      if (!this.#isNakOut) this.#nak(syndromes.nak | nakCodes.sequence);
      return;
    }
    // It was carried out already, and its answer was lost. A peer that does not read its answers
    // gets no more of them.
    if (this.#answers.isFull) return;
    if (packet.opcode < operations.readRequest) {
      this.#answers.acknowledge();
    } else if (packet.opcode === operations.readRequest) {
      this.#onRead(packet, true);
    } else {
      const result = this.#atomics.result(packet.psn);
      if (result !== undefined) this.#answers.atomic(packet.psn, result);
    }
  }

  #onSend(packet: Packet, copies: CopyList, slab: SharedMemory): void {
    const { opcode, payloadBytes } = packet;
    const isFirst = opcode === operations.sendFirst || opcode >= operations.sendOnly;
    const isLast = opcode >= operations.sendLast;
    if (!this.#isInPlace('send', isFirst, isLast, payloadBytes)) return;
    if (isFirst && !this.#beginSend()) return;
    if (this.#placed + payloadBytes > this.#room) {
      this.#failReceive(completionStatuses.LOC_LEN_ERR, nakCodes.invalid, 'a message was longer than its receive');
      return;
    }
    const isThere = this.#resolveSend() && this.#place(payloadBytes, copies, slab, packet.payloadOffset);
    if (!isThere) {
      this.#failReceive(completionStatuses.LOC_PROT_ERR, nakCodes.operation, 'a receive named memory it may not use');
      return;
    }
    const hasImm = opcode === operations.sendLastWithImm || opcode === operations.sendOnlyWithImm;
    this.#taken(packet, isLast);
    if (isLast) this.#complete(packet, completionOpcodes.receive, this.#placed, hasImm);
  }

  #beginSend(): boolean {
    if (!this.#hold()) return false;
    this.#message = 'send';
    this.#placed = 0;
    this.#room = this.#receive.roomBytes;
    this.#generation = -1;
    return true;
  }

  #resolveSend(): boolean {
    const { generation } = this.#owner.regions;
    if (this.#generation === generation) return true;
    this.#generation = generation;
    this.#incoming.clear();
    return this.#receive.resolve(this.#incoming.pieces);
  }

  #onWrite(packet: Packet, copies: CopyList, slab: SharedMemory): void {
    const { opcode, payloadBytes } = packet;
    const isFirst = opcode === operations.writeFirst || opcode >= operations.writeOnly;
    const isLast = opcode >= operations.writeLast;
    if (!this.#isInPlace('write', isFirst, isLast, payloadBytes)) return;
    if (isFirst && !this.#beginWrite(packet)) return;
    const left = this.#room - this.#placed;
    if (isLast ? payloadBytes !== left : payloadBytes > left) {
      this.#refuse(nakCodes.invalid, 'the peer wrote more or less than it said');
      return;
    }
    const hasImm = opcode === operations.writeLastWithImm || opcode === operations.writeOnlyWithImm;
    // Without a receive the packet is retransmitted, as if it had been lost.
    if (hasImm && !this.#hold()) {
      if (isFirst) this.#message = 'none';
      return;
    }
    if (!this.#resolveWrite() || !this.#place(payloadBytes, copies, slab, packet.payloadOffset)) {
      this.#refuse(nakCodes.access, 'the peer asked for memory that it may not reach');
      return;
    }
    this.#taken(packet, isLast);
    if (hasImm) this.#complete(packet, completionOpcodes.receiveWriteWithImm, this.#room, true);
  }

  #beginWrite(packet: Packet): boolean {
    const { rkey, dmaLength } = packet;
    const address = addressIn(packet);
    if (dmaLength > MAX_MESSAGE_BYTES || !mayReach(this.#owner, rkey, address, dmaLength, access.remoteWrite)) {
      this.#refuse(nakCodes.access, 'the peer asked for memory that it may not reach');
      return false;
    }
    this.#message = 'write';
    this.#placed = 0;
    this.#room = dmaLength;
    this.#writeRkey = rkey;
    this.#writeAddress = address;
    this.#generation = -1;
    return true;
  }

  /** A key that was good when the message began may have been revoked since. */
  #resolveWrite(): boolean {
    const { generation } = this.#owner.regions;
    if (this.#generation === generation || this.#room === 0) return true;
    this.#generation = generation;
    this.#incoming.clear();
    const region = regionOf(this.#owner, this.#writeRkey, access.remoteWrite);
    if (region === undefined) return false;
    this.#incoming.pieces.add(region.memory, region.locate(this.#writeAddress, this.#room), this.#room);
    return true;
  }

  /** Whether a packet of this kind and size may come now; if not, a refusal has been queued. */
  #isInPlace(kind: 'send' | 'write', isFirst: boolean, isLast: boolean, payloadBytes: number): boolean {
    const { mtu } = this.#owner;
    const isExpected = isFirst ? this.#message === 'none' : this.#message === kind;
    const isSized = isLast ? payloadBytes <= mtu && (isFirst || payloadBytes > 0) : payloadBytes === mtu;
    if (isExpected && isSized) return true;
    this.#refuse(nakCodes.invalid, isExpected ? 'the peer sent a packet of the wrong size' : 'packets out of order');
    return false;
  }

  #place(bytes: number, copies: CopyList, slab: SharedMemory, offset: number): boolean {
    if (!this.#incoming.scatter(copies, this.#placed, bytes, slab, offset)) return false;
    this.#placed += bytes;
    return true;
  }

  #taken(packet: Packet, isLast: boolean): void {
    this.#answers.advance(1, isLast);
    if (packet.isAckRequested) this.#answers.acknowledge();
    if (isLast) this.#message = 'none';
  }

  #complete(packet: Packet, opcode: number, bytes: number, hasImm: boolean): void {
    const imm = hasImm ? packet.imm : 0;
    this.#receive.complete(completionStatuses.SUCCESS, opcode, bytes, imm, hasImm, packet.isSolicited);
  }

  #onRead(packet: Packet, isRepeated: boolean): void {
    const { rkey, psn } = packet;
    const address = addressIn(packet);
    let bytes = packet.dmaLength;
    if (bytes > MAX_MESSAGE_BYTES || !mayReach(this.#owner, rkey, address, bytes, access.remoteRead)) {
      this.#refuse(nakCodes.access, 'the peer asked for memory that it may not reach', psn);
      return;
    }
    if (!isRepeated && this.#answers.reads >= Math.max(1, this.#maxDestRdAtomic)) {
      this.#refuse(nakCodes.invalid, 'the peer has more reads under way than were agreed on');
      return;
    }
    // Only numbers that were requested before are repeated; the others are still to come.
    if (isRepeated) bytes = Math.min(bytes, -sequenceDistance(psn, this.#answers.expected) * this.#owner.mtu);
    const packets = this.#answers.read(psn, rkey, address, bytes, isRepeated);
    if (!isRepeated) this.#answers.advance(packets, true);
  }

  #onAtomic(packet: Packet, copies: CopyList): void {
    const { rkey } = packet;
    const address = addressIn(packet);
    const isAllowed = mayReach(this.#owner, rkey, address, 8, access.remoteAtomic);
    const region = isAllowed ? regionOf(this.#owner, rkey, access.remoteAtomic) : undefined;
    if (region === undefined) {
      this.#refuse(nakCodes.access, 'the peer asked for memory that it may not reach');
      return;
    }
    const offset = region.locate(address, 8);
    if (offset % 8 !== 0) {
      this.#refuse(nakCodes.invalid, 'the peer asked for an atomic on bytes that are not aligned');
      return;
    }
    if (this.#answers.isFull) {
      this.#refuse(nakCodes.invalid, 'the peer has more atomics under way than were agreed on');
      return;
    }
    // Data of earlier packets is in memory before this one is carried out.
    copies.run();
    this.#answers.atomic(packet.psn, this.#execute(packet, region, offset));
    this.#answers.advance(1, true);
  }

  #execute(packet: Packet, { memory }: Region, offset: number): AtomicResult {
    const { psn, swapLow, swapHigh, compareLow, compareHigh } = packet;
    return packet.opcode === operations.fetchAdd
      ? this.#atomics.fetchAdd(psn, memory, offset, swapLow, swapHigh)
      : this.#atomics.compareSwap(psn, memory, offset, compareLow, compareHigh, swapLow, swapHigh);
  }

  /** Takes the next receive out of the queue; without one the peer gets an RNR NAK. */
  #hold(): boolean {
    if (this.#receive.take()) return true;
    this.#nak(syndromes.rnrNak | this.#minRnrTimer);
    return false;
  }

  #failReceive(status: number, code: number, why: string): void {
    this.#receive.fail(status);
    this.#refuse(code, why);
  }

  /** Refuses for good: the QP is in error, and its peer gets a NAK with the reason. */
  #refuse(code: number, why: string, psn: number = this.#answers.expected): void {
    this.#nak(syndromes.nak | code, psn);
    this.#owner.fail(why);
  }

  #nak(syndrome: number, psn: number = this.#answers.expected): void {
    this.#isNakOut = true;
    this.#answers.nak(syndrome, psn);
  }

  get owesOnlyAck(): boolean {
    return this.#answers.owesOnlyAck;
  }

  /** Sends the answers that are due. */
  transmit(transmitter: Transmitter): void {
    this.#answers.transmit(transmitter);
  }

  flush(isShared: boolean): void {
    this.#receive.flush(isShared);
  }

  reset(isShared: boolean): void {
    this.#answers.clear();
    this.#atomics.clear();
    this.#message = 'none';
    this.#isNakOut = false;
    this.#receive.reset(isShared);
  }
}

function addressIn({ addressHigh, addressLow }: Packet): number {
  return addressHigh > MAX_ADDRESS_HIGH ? Number.MAX_SAFE_INTEGER : addressHigh * TWO_32 + addressLow;
}
