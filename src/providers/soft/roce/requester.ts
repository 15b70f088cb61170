// The sending half of a RoCE QP: cuts requests into packets, keeps a window of them under way, and goes back to the first
// one that is missing (go-back-N).
//
// Every request takes as many sequence numbers as it has packets; a READ as many as its answer has. `#unacked` is the
// oldest number that nobody has answered for, `#next` the one to be sent next, `#top` one past the highest ever sent.

import type { CopyList, SharedMemory } from '../../../native/index.ts';
import {
  access,
  completionStatuses,
  read64,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
} from '../../../verbs/index.ts';
import type { SoftCq } from '../completion-queue.ts';
import { MAX_MESSAGE_BYTES } from '../frame.ts';
import { Outcomes } from '../outcomes.ts';
import { Pieces, storeHalves } from '../pieces.ts';
import type { SendHalf } from '../qp.ts';
import type { RegionTable } from '../region.ts';
import { ackTimeoutNs, type RequesterSettings, Retries, type RetrySettings, rnrTimerNs } from '../retries.ts';
import { SendQueue, type SendQueueSpec } from '../send-queue.ts';
import { addSequence, sequenceDistance } from '../sequence.ts';
import type { Destination } from './address-book.ts';
import { operations } from './opcode.ts';
import { nakCodes, Packet, syndromes } from './packet.ts';
import { PiecesCursor } from './pieces-cursor.ts';
import type { Transmitter } from './transmitter.ts';

/** What a requester needs of its QP. */
export interface RoceRequesterOwner {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  readonly isSending: boolean;
  readonly mtu: number;
  readonly destination: Destination;
  readonly destQp: number;
  /** As of this turn. */
  readonly nowNs: number;
  fail(reason: string): void;
  /** Sees to it that `tick` is called at this time or soon after. */
  wakeAt(ns: number): void;
}

const TWO_32 = 4_294_967_296;
/** Packets under way: what a peer's socket buffer surely holds, and as many as pay off. */
const FIRST_WINDOW = 64;
const MIN_WINDOW = 4;
const MAX_WINDOW = 512;
/** The peer is asked for an acknowledgement at least every so many packets. */
const ACK_EVERY = 16;
/** When a peer with data under way says nothing for this long, it is asked. Not a retry: nothing is known to be lost. */
const FIRST_PROBE_NS = 10_000_000;

export class RoceRequester implements SendHalf {
  readonly #owner: RoceRequesterOwner;
  readonly #queue: SendQueue;
  readonly #outcomes: Outcomes;
  readonly #retries = new Retries();
  readonly #packet = new Packet();
  /** By entry: its first sequence number, and how many it takes. */
  readonly #first: Uint32Array;
  readonly #packets: Uint32Array;
  /** What is being sent, and of which request. */
  readonly #outgoing = new PiecesCursor();
  #outgoingFirst = -1;
  /** Where the answer to the oldest READ goes. */
  readonly #incoming = new PiecesCursor();
  #incomingFirst = -1;
  #generation = 0;
  readonly #pieces = new Pieces();
  #maxRdAtomic = 1;
  #timeoutNs = Number.POSITIVE_INFINITY;
  /** Requests that have their numbers, and the next number to be given. */
  #prepared = 0;
  #nextFree = 0;
  #unacked = 0;
  #next = 0;
  #top = 0;
  /** Which request `#next` is of, counted from the oldest. */
  #position = 0;
  /** Where the answers to READs and atomics that are under way end. */
  readonly #readEnds: number[] = [];
  /**
   * Where the parts end that READs were asked for in. A peer knows them as they were: what is asked for again must not be
   * the end of one and the start of another.
   */
  readonly #partEnds: number[] = [];
  #window = FIRST_WINDOW;
  /** The peer is not ready, and told us to wait until then; 0 when it did not. */
  #notReadyUntilNs = 0;
  #deadlineNs = Number.POSITIVE_INFINITY;
  #probeNs = Number.POSITIVE_INFINITY;
  #probeAfterNs = FIRST_PROBE_NS;
  /** Sent again from `#unacked` on, and nothing has come of it yet. */
  #isRecovering = false;
  /** Packets since the last that asked for an acknowledgement, and whether the next one shall. */
  #unasked = 0;
  #mustAsk = false;

  constructor(owner: RoceRequesterOwner, cq: SoftCq, spec: SendQueueSpec & { readonly signalAll: boolean }) {
    this.#owner = owner;
    this.#queue = new SendQueue(owner, spec);
    this.#outcomes = new Outcomes(owner, cq, this.#queue, spec.signalAll);
    this.#first = new Uint32Array(spec.sendRequests);
    this.#packets = new Uint32Array(spec.sendRequests);
  }

  get count(): number {
    return this.#queue.count;
  }

  get unsent(): number {
    return this.#queue.count - this.#position;
  }

  start(settings: RequesterSettings): void {
    this.#maxRdAtomic = settings.maxRdAtomic;
    this.adjust(settings);
    this.#restart(settings.sqPsn);
  }

  adjust(settings: Partial<RetrySettings>): void {
    if (settings.timeout !== undefined) this.#timeoutNs = ackTimeoutNs(settings.timeout);
    this.#retries.adjust(settings);
  }

  post(batch: SendBatch): number {
    const { words, rowWords, count } = batch;
    for (let index = 0; index < count; index++) {
      if (this.#queue.isFull) return index;
      this.#queue.store(words, index * rowWords);
    }
    return count;
  }

  /** Sends what the window, the peer and the transmitter allow. */
  transmit(transmitter: Transmitter): void {
    while (this.#position < this.#queue.count && this.#notReadyUntilNs === 0) {
      // While the queue is drained, only what has begun goes on.
      if (!this.#owner.isSending && !this.#hasBegun()) return;
      if (this.#position === this.#prepared && !this.#prepare()) return;
      const room = Math.floor(this.#window) - sequenceDistance(this.#next, this.#unacked);
      if (room <= 0) return;
      const entry = this.#queue.entryAt(this.#position);
      const row = this.#queue.rowOf(entry);
      const isFenced = (this.#queue.words[row + sendRow.flags] & sendFlags.fence) !== 0;
      if (isFenced && this.#readEnds.length > 0) return;
      const isRead = this.#queue.words[row + sendRow.opcode] >= sendOpcodes.read;
      if (isRead && this.#readEnds.length >= this.#maxRdAtomic) return;
      if (!transmitter.hasRoom(this.#owner.mtu, this.#queue.maxSge)) return;
      const taken = isRead ? this.#ask(entry, row, room, transmitter) : this.#send(entry, row, room, transmitter);
      if (taken === 0) return;
      const wasIdle = this.#top === this.#unacked;
      this.#next = addSequence(this.#next, taken);
      if (sequenceDistance(this.#next, this.#top) > 0) this.#top = this.#next;
      if (wasIdle) this.#startTimers();
      if (this.#next === addSequence(this.#first[entry], this.#packets[entry])) this.#position++;
    }
  }

  /** Whether some of the request that is next has been sent. */
  #hasBegun(): boolean {
    if (this.#position >= this.#prepared) return false;
    return sequenceDistance(this.#top, this.#first[this.#queue.entryAt(this.#position)]) > 0;
  }

  /** Gives the next request its numbers. False when it is wrong by what is known here, and its turn has not come. */
  #prepare(): boolean {
    const entry = this.#queue.entryAt(this.#prepared);
    const problem = this.#localProblem(entry);
    if (problem !== completionStatuses.SUCCESS) {
      // Errors come in order, too: those before it are answered first.
      if (this.#prepared === 0) this.#failFirst(problem);
      return false;
    }
    const isAtomic = this.#queue.opcodeOf(entry) >= sendOpcodes.fetchAdd;
    const packets = isAtomic ? 1 : Math.max(1, Math.ceil(this.#queue.bytesOf(entry) / this.#owner.mtu));
    this.#first[entry] = this.#nextFree;
    this.#packets[entry] = packets;
    this.#nextFree = addSequence(this.#nextFree, packets);
    this.#prepared++;
    return true;
  }

  #localProblem(entry: number): number {
    const bytes = this.#queue.bytesOf(entry);
    const opcode = this.#queue.opcodeOf(entry);
    const isRead = opcode >= sendOpcodes.read;
    if (bytes > MAX_MESSAGE_BYTES) return completionStatuses.LOC_LEN_ERR;
    if (isRead && this.#maxRdAtomic === 0) return completionStatuses.LOC_QP_OP_ERR;
    if (opcode >= sendOpcodes.fetchAdd && bytes !== 8) return completionStatuses.LOC_LEN_ERR;
    this.#pieces.clear();
    const isFine = this.#queue.resolve(entry, isRead ? access.localWrite : 0, this.#pieces);
    return isFine ? completionStatuses.SUCCESS : completionStatuses.LOC_PROT_ERR;
  }

  /** A packet of a SEND or WRITE. Returns how many numbers were used. */
  #send(entry: number, row: number, room: number, transmitter: Transmitter): number {
    const { mtu, destination } = this.#owner;
    const { words } = this.#queue;
    if (!this.#resolveOutgoing(entry)) return 0;
    const index = sequenceDistance(this.#next, this.#first[entry]);
    const isFirst = index === 0;
    const isLast = index === this.#packets[entry] - 1;
    const opcode = words[row + sendRow.opcode];
    const isWrite = opcode >= sendOpcodes.write;
    const hasImm = isLast && (opcode === sendOpcodes.sendWithImm || opcode === sendOpcodes.writeWithImm);
    const from = index * mtu;
    const payloadBytes = Math.min(mtu, this.#queue.bytesOf(entry) - from);
    const packet = this.#begin(operationOf(isWrite, isFirst, isLast, hasImm));
    const isSolicited = (words[row + sendRow.flags] & sendFlags.solicited) !== 0;
    packet.isSolicited = isSolicited && isLast && (hasImm || !isWrite);
    packet.isAckRequested = room === 1 || this.#wantsAck(row, isLast);
    if (hasImm) packet.imm = words[row + sendRow.imm];
    if (isWrite && isFirst) {
      this.#aim(row, 0);
      packet.dmaLength = this.#queue.bytesOf(entry);
    }
    transmitter.add(packet, destination, payloadBytes, this.#outgoing, from);
    return 1;
  }

  /** Whoever waits for a completion needs an acknowledgement; others are acknowledged together, every now and then. */
  #wantsAck(row: number, isLast: boolean): boolean {
    const isWanted =
      this.#mustAsk ||
      ++this.#unasked >= ACK_EVERY ||
      (isLast && (this.#outcomes.isSignaled(row) || this.#queue.isHalfFull));
    if (isWanted) this.#asked();
    return isWanted;
  }

  #asked(): void {
    this.#unasked = 0;
    this.#mustAsk = false;
  }

  /** The request of a READ or an atomic. A long READ is asked for in parts, so that the answer fits in the window. */
  #ask(entry: number, row: number, room: number, transmitter: Transmitter): number {
    const { mtu, destination } = this.#owner;
    const { words } = this.#queue;
    const opcode = words[row + sendRow.opcode];
    let taken = 1;
    let packet: Packet;
    if (opcode === sendOpcodes.read) {
      const index = sequenceDistance(this.#next, this.#first[entry]);
      const left = Math.min(this.#packets[entry] - index, this.#partLeft());
      // Not in crumbs: rather wait for more room.
      if (room < left && room < this.#window / 4) return 0;
      taken = Math.min(left, room);
      this.#endPart(addSequence(this.#next, taken));
      packet = this.#begin(operations.readRequest);
      this.#aim(row, index * mtu);
      packet.dmaLength = Math.min(this.#queue.bytesOf(entry) - index * mtu, taken * mtu);
    } else {
      const isAdd = opcode === sendOpcodes.fetchAdd;
      packet = this.#begin(isAdd ? operations.fetchAdd : operations.compareSwap);
      this.#aim(row, 0);
      const swap = row + (isAdd ? sendRow.compareAdd : sendRow.swap);
      packet.swapLow = words[swap];
      packet.swapHigh = words[swap + 1];
      packet.compareLow = isAdd ? 0 : words[row + sendRow.compareAdd];
      packet.compareHigh = isAdd ? 0 : words[row + sendRow.compareAdd + 1];
    }
    packet.isAckRequested = true;
    this.#asked();
    transmitter.add(packet, destination, 0, undefined, 0);
    this.#readEnds.push(addSequence(this.#next, taken));
    return taken;
  }

  /** How many answers are left of a part that was asked for before. */
  #partLeft(): number {
    for (const end of this.#partEnds) {
      const left = sequenceDistance(end, this.#next);
      if (left > 0) return left;
    }
    return Number.POSITIVE_INFINITY;
  }

  /** A part that is asked for again may be shorter than before, and then the peer may know it only so. */
  #endPart(end: number): void {
    const ends = this.#partEnds;
    let at = ends.length;
    while (at > 0 && sequenceDistance(ends[at - 1], end) > 0) at--;
    if (at === 0 || ends[at - 1] !== end) ends.splice(at, 0, end);
  }

  #begin(opcode: number): Packet {
    const packet = this.#packet;
    packet.opcode = opcode;
    packet.isSolicited = false;
    packet.destQp = this.#owner.destQp;
    packet.psn = this.#next;
    return packet;
  }

  /** Where in the peer's memory: the request's address and so many bytes. */
  #aim(row: number, offset: number): void {
    const { words } = this.#queue;
    const address = read64(words, row + sendRow.remoteAddress) + offset;
    this.#packet.addressLow = address % TWO_32;
    this.#packet.addressHigh = Math.floor(address / TWO_32);
    this.#packet.rkey = words[row + sendRow.rkey];
  }

  /** Finds the memory of the request that is being sent, again if some region has gone. */
  #resolveOutgoing(entry: number): boolean {
    this.#forgetOldRegions();
    if (this.#outgoingFirst === this.#first[entry]) return true;
    this.#outgoing.clear();
    if (this.#queue.resolve(entry, 0, this.#outgoing.pieces)) {
      this.#outgoingFirst = this.#first[entry];
      return true;
    }
    this.#outgoingFirst = -1;
    if (this.#position === 0) this.#failFirst(completionStatuses.LOC_PROT_ERR);
    return false;
  }

  #resolveIncoming(entry: number): boolean {
    this.#forgetOldRegions();
    if (this.#incomingFirst === this.#first[entry]) return true;
    this.#incomingFirst = this.#first[entry];
    this.#incoming.clear();
    return this.#queue.resolve(entry, access.localWrite, this.#incoming.pieces);
  }

  #forgetOldRegions(): void {
    const { generation } = this.#owner.regions;
    if (this.#generation === generation) return;
    this.#generation = generation;
    this.#outgoingFirst = -1;
    this.#incomingFirst = -1;
  }

  /** An acknowledgement, good or bad. */
  onAcknowledge(psn: number, syndrome: number): void {
    const kind = syndrome & syndromes.kindMask;
    const isAck = kind === 0;
    if (!isAck && kind !== syndromes.rnrNak && kind !== syndromes.nak) return;
    const limit = sequenceDistance(psn, this.#top);
    // What was never sent cannot be answered; a NAK may ask for what comes next.
    if (sequenceDistance(psn, this.#unacked) < 0 || limit > 0 || (limit === 0 && isAck)) return;
    if (!this.#advance(isAck ? addSequence(psn, 1) : psn) || isAck || this.#prepared === 0) return;
    const value = syndrome & syndromes.valueMask;
    if (kind === syndromes.rnrNak) this.#retryLater(value);
    else if (value === nakCodes.sequence) this.#onGap();
    else this.#failFirst(statusOf(value));
  }

  /** A part of the answer to a READ. */
  onReadResponse(psn: number, bytes: number, copies: CopyList, slab: SharedMemory, offset: number): void {
    const entry = this.#answered(psn, sendOpcodes.read, sendOpcodes.read);
    if (entry < 0) return;
    const index = sequenceDistance(psn, this.#first[entry]);
    const at = index * this.#owner.mtu;
    if (bytes !== Math.min(this.#owner.mtu, this.#queue.bytesOf(entry) - at)) {
      this.#failFirst(completionStatuses.BAD_RESP_ERR);
      return;
    }
    if (!this.#resolveIncoming(entry) || !this.#incoming.scatter(copies, at, bytes, slab, offset)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    if (index === this.#packets[entry] - 1) this.#queue.answer(entry);
    this.#answeredTo(addSequence(psn, 1));
  }

  onAtomicAcknowledge(psn: number, low: number, high: number): void {
    const entry = this.#answered(psn, sendOpcodes.fetchAdd, sendOpcodes.compareSwap);
    if (entry < 0) return;
    this.#pieces.clear();
    if (!this.#queue.resolve(entry, access.localWrite, this.#pieces)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    storeHalves(this.#pieces, low, high);
    this.#queue.answer(entry);
    this.#answeredTo(addSequence(psn, 1));
  }

  /** The entry that an answer is for, after completing those before it: they were carried out first. -1 if none. */
  #answered(psn: number, fromOpcode: number, toOpcode: number): number {
    if (sequenceDistance(psn, this.#unacked) < 0 || sequenceDistance(psn, this.#top) >= 0) return -1;
    if (!this.#advance(psn) || psn !== this.#unacked || this.#prepared === 0) return -1;
    const entry = this.#queue.entryAt(0);
    const opcode = this.#queue.opcodeOf(entry);
    return opcode >= fromOpcode && opcode <= toOpcode ? entry : -1;
  }

  /** An answer has come for everything before `to`, and is in its place. */
  #answeredTo(to: number): void {
    this.#moveTo(to);
    this.#advance(to);
  }

  /**
   * The peer has carried out everything before `to`: completes those requests. False when that skips an answer that has
   * not come; then it is asked for again.
   */
  #advance(to: number): boolean {
    while (this.#prepared > 0) {
      const entry = this.#queue.entryAt(0);
      const needsAnswer = this.#queue.opcodeOf(entry) >= sendOpcodes.read && !this.#queue.isAnswered(entry);
      if (needsAnswer) {
        if (sequenceDistance(to, this.#unacked) <= 0 || sequenceDistance(to, this.#first[entry]) <= 0) break;
        if (!this.#isRecovering) this.#retry();
        return false;
      }
      const end = addSequence(this.#first[entry], this.#packets[entry]);
      if (sequenceDistance(to, end) < 0) break;
      this.#moveTo(end);
      this.#shift();
      this.#outcomes.doneFirst(completionStatuses.SUCCESS);
    }
    this.#moveTo(to);
    return true;
  }

  /** Nothing before `to` needs to be sent again. */
  #moveTo(to: number): void {
    const progress = sequenceDistance(to, this.#unacked);
    if (progress <= 0) return;
    this.#unacked = to;
    this.#window = Math.min(MAX_WINDOW, this.#window + progress / 2);
    this.#isRecovering = false;
    this.#retries.reset();
    this.#probeAfterNs = FIRST_PROBE_NS;
    while (this.#readEnds.length > 0 && sequenceDistance(this.#readEnds[0], to) <= 0) this.#readEnds.shift();
    while (this.#partEnds.length > 0 && sequenceDistance(this.#partEnds[0], to) <= 0) this.#partEnds.shift();
    if (sequenceDistance(this.#next, to) < 0) {
      // Answered while it was about to be sent again.
      this.#next = to;
      this.#position = this.#positionOf(to);
    }
    this.#startTimers();
  }

  /** The oldest request is about to leave the queue. */
  #shift(): void {
    // Another request will have the same first number some day.
    const first = this.#first[this.#queue.entryAt(0)];
    if (this.#outgoingFirst === first) this.#outgoingFirst = -1;
    if (this.#incomingFirst === first) this.#incomingFirst = -1;
    this.#prepared--;
    if (this.#position > 0) this.#position--;
  }

  #positionOf(psn: number): number {
    let position = 0;
    while (position < this.#prepared) {
      const entry = this.#queue.entryAt(position);
      if (sequenceDistance(psn, addSequence(this.#first[entry], this.#packets[entry])) < 0) break;
      position++;
    }
    return position;
  }

  /** Something is missing at the peer. What follows a request that it was not ready for is, too, and comes again with it. */
  #onGap(): void {
    if (this.#notReadyUntilNs === 0) this.#retry();
  }

  #retryLater(timerCode: number): void {
    if (!this.#retries.takeNotReady()) {
      this.#failFirst(completionStatuses.RNR_RETRY_EXC_ERR);
      return;
    }
    this.#rewind();
    this.#notReadyUntilNs = this.#owner.nowNs + rnrTimerNs(timerCode);
    this.#owner.wakeAt(this.#notReadyUntilNs);
  }

  #retry(): void {
    if (!this.#retries.take()) {
      this.#failFirst(completionStatuses.RETRY_EXC_ERR);
      return;
    }
    this.#window = Math.max(MIN_WINDOW, this.#window / 2);
    this.#isRecovering = true;
    this.#rewind();
    this.#startTimers();
  }

  /** Sends again from the oldest on. */
  #rewind(): void {
    this.#next = this.#unacked;
    this.#position = this.#positionOf(this.#unacked);
    this.#readEnds.length = 0;
    this.#mustAsk = true;
  }

  #startTimers(): void {
    const { nowNs } = this.#owner;
    this.#deadlineNs = nowNs + this.#timeoutNs;
    this.#probeNs = nowNs + this.#probeAfterNs;
    if (this.#unacked !== this.#top) this.#owner.wakeAt(Math.min(this.#deadlineNs, this.#probeNs));
  }

  /** Time has passed. */
  tick(): void {
    const { nowNs } = this.#owner;
    if (this.#notReadyUntilNs !== 0) {
      if (nowNs < this.#notReadyUntilNs) this.#owner.wakeAt(this.#notReadyUntilNs);
      else {
        this.#notReadyUntilNs = 0;
        this.#startTimers();
      }
      return;
    }
    if (this.#unacked === this.#top || this.#prepared === 0) return;
    if (nowNs >= this.#deadlineNs) {
      this.#probeAfterNs = FIRST_PROBE_NS;
      this.#retry();
      return;
    }
    if (nowNs >= this.#probeNs) {
      this.#probeAfterNs *= 2;
      this.#probe();
    }
    this.#probeNs = nowNs + this.#probeAfterNs;
    this.#owner.wakeAt(Math.min(this.#deadlineNs, this.#probeNs));
  }

  /**
   * Sends something once more: the answer tells what was lost, or that nothing was. First what was sent last, which is
   * likely to be all that the peer has not answered; but a peer that has reported a gap does not do so again, so then it is
   * the oldest.
   */
  #probe(): void {
    const last = addSequence(this.#top, -1);
    const position = this.#positionOf(last);
    const isData = position < this.#prepared && this.#queue.opcodeOf(this.#queue.entryAt(position)) < sendOpcodes.read;
    const isFirst = this.#probeAfterNs === 2 * FIRST_PROBE_NS;
    if (isFirst && isData && this.#next === this.#top) {
      this.#next = last;
      this.#position = position;
      this.#mustAsk = true;
    } else {
      this.#window = MIN_WINDOW;
      this.#rewind();
    }
  }

  /** The oldest request failed: its status tells why, and the QP is in error. */
  #failFirst(status: number): void {
    if (this.#prepared > 0) this.#shift();
    this.#outcomes.doneFirst(status);
    this.#owner.fail(`a request failed with status ${status}`);
  }

  flush(): void {
    while (this.#queue.count > 0) this.#outcomes.doneFirst(completionStatuses.WR_FLUSH_ERR);
    this.#restart(0);
  }

  reset(): void {
    this.#queue.clear();
    this.#restart(0);
  }

  #restart(psn: number): void {
    this.#prepared = 0;
    this.#position = 0;
    this.#nextFree = psn;
    this.#unacked = psn;
    this.#next = psn;
    this.#top = psn;
    this.#readEnds.length = 0;
    this.#partEnds.length = 0;
    this.#window = FIRST_WINDOW;
    this.#notReadyUntilNs = 0;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#probeNs = Number.POSITIVE_INFINITY;
    this.#probeAfterNs = FIRST_PROBE_NS;
    this.#isRecovering = false;
    this.#asked();
    this.#outgoingFirst = -1;
    this.#incomingFirst = -1;
  }

  close(): void {
    this.#queue.close();
  }
}

function operationOf(isWrite: boolean, isFirst: boolean, isLast: boolean, hasImm: boolean): number {
  const base = isWrite ? operations.writeFirst : operations.sendFirst;
  const imm = hasImm ? 1 : 0;
  if (isFirst && isLast) return base + operations.sendOnly + imm;
  if (isFirst) return base;
  return isLast ? base + operations.sendLast + imm : base + operations.sendMiddle;
}

function statusOf(nakCode: number): number {
  if (nakCode === nakCodes.access) return completionStatuses.REM_ACCESS_ERR;
  return nakCode === nakCodes.operation ? completionStatuses.REM_OP_ERR : completionStatuses.REM_INV_REQ_ERR;
}
