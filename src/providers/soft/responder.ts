// The receiving half of a QP: carries out the peer's requests in their order, each once, and
// answers.

import { access, completionOpcodes, completionStatuses, read64 } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import { beginFrame, frameFlags, frameType, frameTypes, hasFlag, headerRow, nakReasons } from './frame.ts';
import { HeldReceive, type HeldReceiveOwner } from './held-receive.ts';
import type { Pieces } from './pieces.ts';
import type { ReceiveQueue } from './receive-queue.ts';
import type { Region } from './region.ts';
import { AtomicUnit, mayReach, type Reached, regionOf } from './remote-access.ts';
import { addSequence, sequenceDistance } from './sequence.ts';

export type ResponderOwner = HeldReceiveOwner & Reached;

/** An answer to be sent. */
interface Answer {
  readonly type: number;
  readonly sequence: number;
  /**
   * Of a nak, reason and timer; of an atomic, halves of what was there; of a read, region and
   * range.
   */
  readonly imm?: number;
  readonly low?: number;
  readonly high?: number;
  readonly region?: Region;
  readonly address?: number;
  readonly bytes?: number;
  /** It was given before, and does not count among the reads under way. */
  readonly isRepeated?: boolean;
}

/** More than the reads and atomics that may be under way (128), and a refusal. */
const MAX_ANSWERS = 512;

const neededAccess: Readonly<Record<number, number>> = {
  [frameTypes.write]: access.remoteWrite,
  [frameTypes.read]: access.remoteRead,
  [frameTypes.fetchAdd]: access.remoteAtomic,
  [frameTypes.compareSwap]: access.remoteAtomic,
};

export class Responder {
  readonly #owner: ResponderOwner;
  readonly #receive: HeldReceive;
  #expected = 0;
  #maxDestRdAtomic = 1;
  #minRnrTimer = 0;
  readonly #answers: Answer[] = [];
  #readAnswers = 0;
  readonly #atomics = new AtomicUnit();
  /** Requests were carried out and not acknowledged, */
  #isAckOwed = false;
  /** and the peer waits for it. */
  #isAckDue = false;
  /** A NAK is out: everything is dropped until the request that it asked for comes. */
  #isNakOut = false;

  constructor(owner: ResponderOwner, cq: SoftCq, queue: ReceiveQueue) {
    this.#owner = owner;
    this.#receive = new HeldReceive(owner, cq, queue);
  }

  start(rqPsn: number, maxDestRdAtomic: number, minRnrTimer: number): void {
    this.#expected = rqPsn;
    this.#maxDestRdAtomic = maxDestRdAtomic;
    this.#atomics.start(maxDestRdAtomic);
    this.#minRnrTimer = minRnrTimer;
  }

  adjust(minRnrTimer: number): void {
    this.#minRnrTimer = minRnrTimer;
  }

  /**
   * A request has come. Fills in where its payload goes, or returns false when it is not to be
   * carried out.
   */
  onHeader(header: Uint32Array, into: Pieces): boolean {
    const distance = sequenceDistance(header[headerRow.sequence], this.#expected);
    if (distance !== 0) {
      this.#onUnexpected(header, distance);
      return false;
    }
    this.#isNakOut = false;
    const type = frameType(header);
    if (type === frameTypes.send) return this.#beginSend(header, into);
    if (!this.#mayReach(header, type)) return false;
    return type !== frameTypes.write || this.#beginWrite(header, into);
  }

  /** Its payload, if any, is in place. */
  onFrame(header: Uint32Array, isIntact: boolean): void {
    const sequence = header[headerRow.sequence];
    if (sequence !== this.#expected || this.#isNakOut) return;
    if (!isIntact) {
      this.#nak(nakReasons.sequence);
      return;
    }
    switch (frameType(header)) {
      case frameTypes.send:
        this.#completeReceive(header, completionOpcodes.receive);
        this.#owe(header);
        break;
      case frameTypes.write:
        if (hasFlag(header, frameFlags.hasImm)) this.#completeReceive(header, completionOpcodes.receiveWriteWithImm);
        this.#owe(header);
        break;
      case frameTypes.read:
        if (!this.#answerRead(header)) return;
        break;
      default:
        if (!this.#answerAtomic(header)) return;
    }
    this.#expected = addSequence(this.#expected, 1);
  }

  #owe(header: Uint32Array): void {
    this.#isAckOwed = true;
    if (hasFlag(header, frameFlags.wantsAck)) this.#isAckDue = true;
  }

  #onUnexpected(header: Uint32Array, distance: number): void {
    if (distance > 0) {
      // Requests are missing. They are asked for once; what is under way meanwhile is
      // retransmitted.
      if (!this.#isNakOut) this.#nak(nakReasons.sequence);
      return;
    }
    // It was carried out already, and its answer was lost. A peer that does not read its answers
    // gets no more of them.
    const type = frameType(header);
    if (this.#answers.length >= MAX_ANSWERS) return;
    if (type === frameTypes.send || type === frameTypes.write) {
      this.#isAckDue = true;
    } else if (type === frameTypes.read) {
      if (this.#mayReach(header, type)) this.#pushRead(header, true);
    } else {
      const sequence = header[headerRow.sequence];
      const result = this.#atomics.result(sequence);
      if (result !== undefined) this.#answers.push({ type: frameTypes.atomicResponse, sequence, ...result });
    }
  }

  #beginSend(header: Uint32Array, into: Pieces): boolean {
    if (!this.#hold()) return false;
    if (header[headerRow.payloadBytes] > this.#receive.roomBytes) {
      this.#failReceive(completionStatuses.LOC_LEN_ERR, nakReasons.invalid, 'a message was longer than its receive');
      return false;
    }
    // Only as much memory as the message needs is resolved; the rest of the receive stays
    // unchecked.
    if (this.#receive.resolve(into)) return true;
    this.#failReceive(completionStatuses.LOC_PROT_ERR, nakReasons.operation, 'a receive named memory it may not use');
    return false;
  }

  #beginWrite(header: Uint32Array, into: Pieces): boolean {
    if (hasFlag(header, frameFlags.hasImm) && !this.#hold()) return false;
    const bytes = header[headerRow.payloadBytes];
    const region = bytes === 0 ? undefined : this.#regionOf(header, access.remoteWrite);
    if (region !== undefined)
      into.add(region.memory, region.locate(read64(header, headerRow.remoteAddress), bytes), bytes);
    return true;
  }

  #regionOf(header: Uint32Array, needed: number): Region | undefined {
    return regionOf(this.#owner, header[headerRow.rkey], needed);
  }

  /** Whether the peer may do what it asks for; if not, a refusal has been queued. */
  #mayReach(header: Uint32Array, type: number): boolean {
    const isAtomic = type === frameTypes.fetchAdd || type === frameTypes.compareSwap;
    const bytes = isAtomic ? 8 : type === frameTypes.read ? header[headerRow.operandA] : header[headerRow.payloadBytes];
    const address = read64(header, headerRow.remoteAddress);
    if (!mayReach(this.#owner, header[headerRow.rkey], address, bytes, neededAccess[type] ?? 0)) {
      this.#nak(nakReasons.access);
      this.#owner.fail('the peer asked for memory that it may not reach');
      return false;
    }
    if (isAtomic && (this.#regionOf(header, access.remoteAtomic)?.locate(address, 8) ?? 0) % 8 !== 0) {
      this.#nak(nakReasons.invalid);
      this.#owner.fail('the peer asked for an atomic on bytes that are not aligned');
      return false;
    }
    return true;
  }

  #answerRead(header: Uint32Array): boolean {
    if (this.#readAnswers >= Math.max(1, this.#maxDestRdAtomic)) {
      this.#nak(nakReasons.invalid);
      this.#owner.fail('the peer has more reads under way than were agreed on');
      return false;
    }
    this.#readAnswers++;
    this.#pushRead(header, false);
    return true;
  }

  #pushRead(header: Uint32Array, isRepeated: boolean): void {
    const bytes = header[headerRow.operandA];
    const region = bytes === 0 ? undefined : this.#regionOf(header, access.remoteRead);
    const address = read64(header, headerRow.remoteAddress);
    const sequence = header[headerRow.sequence];
    const type = frameTypes.readResponse;
    this.#answers.push({ type, sequence, ...(region && { region }), address, bytes, isRepeated });
  }

  #answerAtomic(header: Uint32Array): boolean {
    const region = this.#regionOf(header, access.remoteAtomic);
    if (region === undefined) return false;
    if (this.#answers.length >= MAX_ANSWERS) {
      this.#nak(nakReasons.invalid);
      this.#owner.fail('the peer has more atomics under way than were agreed on');
      return false;
    }
    const offset = region.locate(read64(header, headerRow.remoteAddress), 8);
    const [aLow, aHigh] = [header[headerRow.operandA], header[headerRow.operandA + 1]];
    const [bLow, bHigh] = [header[headerRow.operandB], header[headerRow.operandB + 1]];
    const sequence = header[headerRow.sequence];
    const { memory } = region;
    const result =
      frameType(header) === frameTypes.fetchAdd
        ? this.#atomics.fetchAdd(sequence, memory, offset, aLow, aHigh)
        : this.#atomics.compareSwap(sequence, memory, offset, aLow, aHigh, bLow, bHigh);
    this.#answers.push({ type: frameTypes.atomicResponse, sequence, ...result });
    return true;
  }

  /** Takes the next receive out of the queue; without one the peer gets an RNR NAK. */
  #hold(): boolean {
    if (this.#receive.take()) return true;
    this.#nak(nakReasons.notReady);
    return false;
  }

  #completeReceive(header: Uint32Array, opcode: number): void {
    const bytes = header[headerRow.payloadBytes];
    const imm = header[headerRow.imm];
    const isSolicited = hasFlag(header, frameFlags.solicited);
    this.#receive.complete(
      completionStatuses.SUCCESS,
      opcode,
      bytes,
      imm,
      hasFlag(header, frameFlags.hasImm),
      isSolicited,
    );
  }

  #failReceive(status: number, reason: number, why: string): void {
    this.#receive.fail(status);
    this.#nak(reason);
    this.#owner.fail(why);
  }

  #nak(reason: number): void {
    this.#isNakOut = true;
    const imm = reason | (this.#minRnrTimer << 8);
    const last = this.#answers.at(-1);
    // One is enough, however often a peer that does not read its answers asks.
    if (last?.type === frameTypes.nak && last.sequence === this.#expected && last.imm === imm) return;
    this.#answers.push({ type: frameTypes.nak, sequence: this.#expected, imm });
  }

  get owesAck(): boolean {
    return this.#isAckDue;
  }

  /** Nobody will ask any more: what was carried out is acknowledged, asked for or not. */
  ackAll(): void {
    this.#isAckDue = this.#isAckOwed;
  }

  /** The next answer as a frame. Acknowledgements gather: one for all that came before it. */
  nextFrame(header: Uint32Array, payload: Pieces, mayAck: boolean): boolean {
    const answer = this.#answers[0];
    if (answer === undefined) {
      if (!this.#isAckDue || !mayAck) return false;
      this.#isAckDue = false;
      this.#isAckOwed = false;
      beginFrame(header, frameTypes.ack, 0, addSequence(this.#expected, -1), 0);
      return true;
    }
    this.#answers.shift();
    // Any answer acknowledges all requests before it, so they need no acknowledgement of their own.
    if (answer.sequence === addSequence(this.#expected, -1)) {
      this.#isAckDue = false;
      this.#isAckOwed = false;
    }
    const { region, address = 0, bytes = 0, imm = 0, low = 0, high = 0 } = answer;
    beginFrame(header, answer.type, 0, answer.sequence, bytes);
    header[headerRow.imm] = imm;
    header[headerRow.operandA] = low;
    header[headerRow.operandA + 1] = high;
    if (answer.type === frameTypes.readResponse) {
      if (answer.isRepeated !== true) this.#readAnswers--;
      if (region !== undefined) payload.add(region.memory, region.locate(address, bytes), bytes);
    }
    return true;
  }

  flush(isShared: boolean): void {
    this.#receive.flush(isShared);
  }

  /** Whether the last answer refuses for good: it and those before it still go out. */
  get isRefusing(): boolean {
    const last = this.#answers.at(-1);
    return last?.type === frameTypes.nak && ((last.imm ?? 0) & 0xff) > nakReasons.sequence;
  }

  /** Whether answers are lost when the QP stops now. */
  dropAnswers(): boolean {
    const isAnythingLost = this.#answers.length > 0;
    this.#answers.length = 0;
    return isAnythingLost;
  }

  reset(isShared: boolean): void {
    this.#answers.length = 0;
    this.#readAnswers = 0;
    this.#atomics.clear();
    this.#isAckDue = false;
    this.#isAckOwed = false;
    this.#isNakOut = false;
    this.#receive.reset(isShared);
  }
}
