// The receiving half of a QP: carries out the peer's requests in their order, each once, and answers.

import { compareSwap64, fetchAdd64, high64, low64 } from '../../native/index.ts';
import { access, completionOpcodes, completionStatuses, read64, receiveRow, sgeRow } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import {
  addSequence,
  beginFrame,
  frameFlags,
  frameType,
  frameTypes,
  hasFlag,
  headerRow,
  nakReasons,
  sequenceDistance,
} from './frame.ts';
import type { Pieces } from './pieces.ts';
import type { ReceiveQueue } from './receive-queue.ts';
import { type Region, type RegionTable, resolveSges } from './region.ts';

export interface ResponderOwner {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  /** What the QP itself allows its peer. */
  readonly access: number;
  fail(reason: string): void;
}

/** Something to send back. */
interface Answer {
  readonly type: number;
  readonly sequence: number;
  /** Of a nak, reason and timer; of an atomic, halves of what was there; of a read, region and range. */
  readonly imm?: number;
  readonly low?: number;
  readonly high?: number;
  readonly region?: Region;
  readonly address?: number;
  readonly bytes?: number;
  /** Given before, and not counted among the reads under way. */
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
  readonly #cq: SoftCq;
  readonly #queue: ReceiveQueue;
  /** The receive that a message is arriving in, taken out of the queue: others may share that. */
  readonly #held: Uint32Array;
  #isHeld = false;
  #expected = 0;
  #maxDestRdAtomic = 1;
  #minRnrTimer = 0;
  readonly #answers: Answer[] = [];
  #readAnswers = 0;
  /** Results of atomics, by sequence number: a repeated one must not be carried out again. */
  readonly #atomicResults = new Map<number, { readonly low: number; readonly high: number }>();
  #isAckDue = false;
  /** A nak is out: everything is dropped until what was asked for comes. */
  #isNakOut = false;

  constructor(owner: ResponderOwner, cq: SoftCq, queue: ReceiveQueue) {
    this.#owner = owner;
    this.#cq = cq;
    this.#queue = queue;
    this.#held = new Uint32Array(queue.rowWords);
  }

  start(rqPsn: number, maxDestRdAtomic: number, minRnrTimer: number): void {
    this.#expected = rqPsn;
    this.#maxDestRdAtomic = maxDestRdAtomic;
    this.#minRnrTimer = minRnrTimer;
  }

  adjust(minRnrTimer: number): void {
    this.#minRnrTimer = minRnrTimer;
  }

  get hasAnswers(): boolean {
    return this.#isAckDue || this.#answers.length > 0;
  }

  /** A request has come. Says where its payload goes, or false when it is not to be carried out. */
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
        this.#isAckDue = true;
        break;
      case frameTypes.write:
        if (hasFlag(header, frameFlags.hasImm)) this.#completeReceive(header, completionOpcodes.receiveWriteWithImm);
        this.#isAckDue = true;
        break;
      case frameTypes.read:
        if (!this.#answerRead(header)) return;
        break;
      default:
        if (!this.#answerAtomic(header)) return;
    }
    this.#expected = addSequence(this.#expected, 1);
  }

  #onUnexpected(header: Uint32Array, distance: number): void {
    if (distance > 0) {
      // Something is missing. Asked for once; what is under way meanwhile comes again.
      if (!this.#isNakOut) this.#nak(nakReasons.sequence);
      return;
    }
    // It was carried out already, and its answer was lost. A peer that does not take its answers gets no more.
    const type = frameType(header);
    if (this.#answers.length >= MAX_ANSWERS) return;
    if (type === frameTypes.send || type === frameTypes.write) {
      this.#isAckDue = true;
    } else if (type === frameTypes.read) {
      if (this.#mayReach(header, type)) this.#pushRead(header, true);
    } else {
      const sequence = header[headerRow.sequence];
      const result = this.#atomicResults.get(sequence);
      if (result !== undefined) this.#answers.push({ type: frameTypes.atomicResponse, sequence, ...result });
    }
  }

  #beginSend(header: Uint32Array, into: Pieces): boolean {
    if (!this.#hold()) return false;
    const sges = this.#held[receiveRow.sgeCount];
    let room = 0;
    for (let sge = 0; sge < sges; sge++) room += this.#held[receiveRow.sge + sge * sgeRow.words + sgeRow.length];
    if (header[headerRow.payloadBytes] > room) {
      this.#failReceive(completionStatuses.LOC_LEN_ERR, nakReasons.invalid, 'a message was longer than its receive');
      return false;
    }
    const { pd, regions } = this.#owner;
    // Only as much as the message needs is looked at; the rest of the receive stays untouched.
    if (resolveSges(regions, pd, this.#held, receiveRow.sge, sges, access.localWrite, into)) return true;
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
    const { pd, regions, number } = this.#owner;
    return regions.remote(header[headerRow.rkey], pd, number, needed);
  }

  /** Whether the peer may do what it asks for; if not, it has been told so. */
  #mayReach(header: Uint32Array, type: number): boolean {
    const needed = neededAccess[type] ?? 0;
    const isAtomic = type === frameTypes.fetchAdd || type === frameTypes.compareSwap;
    const bytes = isAtomic ? 8 : type === frameTypes.read ? header[headerRow.operandA] : header[headerRow.payloadBytes];
    const address = read64(header, headerRow.remoteAddress);
    const isAllowed = (this.#owner.access & needed) === needed;
    // Nothing at all may be written to or read from anywhere, as on other devices.
    if (bytes === 0 && isAllowed) return true;
    const offset = isAllowed ? (this.#regionOf(header, needed)?.locate(address, bytes) ?? -1) : -1;
    if (offset < 0) {
      this.#nak(nakReasons.access);
      this.#owner.fail('the peer asked for memory that it may not reach');
      return false;
    }
    if (isAtomic && offset % 8 !== 0) {
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
    if (frameType(header) === frameTypes.fetchAdd) fetchAdd64(region.memory, offset, aLow, aHigh);
    else compareSwap64(region.memory, offset, aLow, aHigh, bLow, bHigh);
    const result = { low: low64(), high: high64() };
    const sequence = header[headerRow.sequence];
    this.#atomicResults.set(sequence, result);
    // As many as the peer may have under way can be asked for again; older ones cannot.
    if (this.#atomicResults.size > 2 * Math.max(1, this.#maxDestRdAtomic)) {
      for (const oldest of this.#atomicResults.keys()) {
        this.#atomicResults.delete(oldest);
        break;
      }
    }
    this.#answers.push({ type: frameTypes.atomicResponse, sequence, ...result });
    return true;
  }

  /** Takes the next receive out of the queue; without one the peer is told to come again. */
  #hold(): boolean {
    if (this.#isHeld) return true;
    const { front } = this.#queue;
    if (front < 0) {
      this.#nak(nakReasons.notReady);
      return false;
    }
    const { words, rowWords } = this.#queue;
    for (let word = 0; word < rowWords; word++) this.#held[word] = words[front + word];
    this.#isHeld = true;
    this.#queue.shift();
    return true;
  }

  #completeReceive(header: Uint32Array, opcode: number): void {
    const hasImm = hasFlag(header, frameFlags.hasImm);
    const bytes = header[headerRow.payloadBytes];
    this.#pushReceive(
      completionStatuses.SUCCESS,
      opcode,
      bytes,
      header[headerRow.imm],
      hasImm,
      hasFlag(header, frameFlags.solicited),
    );
  }

  #failReceive(status: number, reason: number, why: string): void {
    this.#pushReceive(status, completionOpcodes.receive, 0, 0, false, true);
    this.#nak(reason);
    this.#owner.fail(why);
  }

  #pushReceive(
    status: number,
    opcode: number,
    bytes: number,
    imm: number,
    hasImm: boolean,
    isSolicited: boolean,
  ): void {
    const low = this.#held[receiveRow.wrId];
    const high = this.#held[receiveRow.wrId + 1];
    this.#isHeld = false;
    const isKept = this.#cq.push(low, high, status, opcode, bytes, this.#owner.number, imm, hasImm, isSolicited);
    if (!isKept) this.#owner.fail('its CQ is full');
  }

  #nak(reason: number): void {
    this.#isNakOut = true;
    const imm = reason | (this.#minRnrTimer << 8);
    const last = this.#answers.at(-1);
    // Once is enough, however often a peer that does not listen asks.
    if (last?.type === frameTypes.nak && last.sequence === this.#expected && last.imm === imm) return;
    this.#answers.push({ type: frameTypes.nak, sequence: this.#expected, imm });
  }

  /** The next answer as a frame. Acknowledgements gather: one for all that came before it. */
  nextFrame(header: Uint32Array, payload: Pieces): boolean {
    const answer = this.#answers[0];
    if (answer === undefined) {
      if (!this.#isAckDue) return false;
      this.#isAckDue = false;
      beginFrame(header, frameTypes.ack, 0, addSequence(this.#expected, -1), 0);
      return true;
    }
    this.#answers.shift();
    // Whatever is answered, all before it was carried out: no acknowledgement of its own is needed for that.
    if (answer.sequence === addSequence(this.#expected, -1)) this.#isAckDue = false;
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

  /** Everything that was posted and not used, in order. What is shared stays with the others. */
  flush(isShared: boolean): void {
    const flushed = (): void =>
      this.#pushReceive(completionStatuses.WR_FLUSH_ERR, completionOpcodes.receive, 0, 0, false, true);
    if (this.#isHeld) flushed();
    while (!isShared && this.#queue.front >= 0) {
      const { front, words, rowWords } = this.#queue;
      for (let word = 0; word < rowWords; word++) this.#held[word] = words[front + word];
      this.#queue.shift();
      flushed();
    }
  }

  /** The last answer is a refusal for good: it and those before it still go out, and tell the peer all it must know. */
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
    this.#atomicResults.clear();
    this.#isAckDue = false;
    this.#isNakOut = false;
    this.#isHeld = false;
    if (!isShared) this.#queue.clear();
  }
}
