// The sending half of a RoCE QP: keeps a window of packets under way, completes the requests that
// the peer has answered, and retransmits from the first one that is missing (go-back-N).

import type { CopyList, SharedMemory } from '../../../native/index.ts';
import { access, completionStatuses, type SendBatch, sendFlags, sendOpcodes, sendRow } from '../../../verbs/index.ts';
import type { SoftCq } from '../completion-queue.ts';
import { Pieces } from '../pieces.ts';
import type { SendHalf } from '../qp.ts';
import { type RequesterSettings, Retries, type RetrySettings } from '../retries.ts';
import { SendCompletions } from '../send-completions.ts';
import { type QueueOwner, SendQueue, type SendQueueSpec } from '../send-queue.ts';
import { addSequence, sequenceDistance } from '../sequence.ts';
import { Flight } from './flight.ts';
import { nakCodes, syndromes } from './packet.ts';
import { ReadsUnderWay } from './reads-under-way.ts';
import { RequestMemory } from './request-memory.ts';
import { RequestPackets, type RequestPacketsOwner } from './request-packets.ts';
import { RetransmissionTimers, type TimersOwner } from './retransmission-timers.ts';
import type { Transmitter } from './transmitter.ts';

/** What a requester needs of its QP. */
export interface RoceRequesterOwner extends QueueOwner, RequestPacketsOwner, TimersOwner {
  readonly number: number;
  readonly isSending: boolean;
  fail(reason: string): void;
}

export class RoceRequester implements SendHalf {
  readonly #owner: RoceRequesterOwner;
  readonly #queue: SendQueue;
  readonly #completions: SendCompletions;
  readonly #retries = new Retries();
  readonly #timers: RetransmissionTimers;
  readonly #flight: Flight;
  readonly #reads = new ReadsUnderWay();
  readonly #packets: RequestPackets;
  /** Where the answer to the oldest READ goes. */
  readonly #incoming: RequestMemory;
  readonly #pieces = new Pieces();
  #maxRdAtomic = 1;
  /** It has retransmitted from the oldest on, and no answer has come yet. */
  #isRecovering = false;

  constructor(owner: RoceRequesterOwner, cq: SoftCq, spec: SendQueueSpec & { readonly signalAll: boolean }) {
    this.#owner = owner;
    this.#queue = new SendQueue(owner, spec);
    this.#completions = new SendCompletions(owner, cq, this.#queue, spec.signalAll);
    this.#timers = new RetransmissionTimers(owner);
    this.#flight = new Flight(this.#queue, spec.sendRequests);
    this.#packets = new RequestPackets(owner, this.#queue, this.#completions, this.#flight, this.#reads);
    this.#incoming = new RequestMemory(this.#queue, owner.regions, access.localWrite);
  }

  get count(): number {
    return this.#queue.count;
  }

  get unsent(): number {
    return this.#queue.count - this.#flight.position;
  }

  start(settings: RequesterSettings): void {
    this.#maxRdAtomic = settings.maxRdAtomic;
    this.adjust(settings);
    this.#restart(settings.sqPsn);
  }

  adjust(settings: Partial<RetrySettings>): void {
    if (settings.timeout !== undefined) this.#timers.timeout = settings.timeout;
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
    const queue = this.#queue;
    const flight = this.#flight;
    while (flight.position < queue.count && !this.#timers.isPeerNotReady) {
      // While the queue is drained (SQD), only requests that have begun go on.
      if (!this.#owner.isSending && !flight.hasBegun) return;
      if (flight.position === flight.numbered && !this.#number()) return;
      const { room } = flight;
      if (room <= 0) return;
      const entry = queue.entryAt(flight.position);
      const row = queue.rowOf(entry);
      const isFenced = (queue.words[row + sendRow.flags] & sendFlags.fence) !== 0;
      if (isFenced && this.#reads.count > 0) return;
      const isRead = queue.words[row + sendRow.opcode] >= sendOpcodes.read;
      if (isRead && this.#reads.count >= this.#maxRdAtomic) return;
      if (!transmitter.hasRoom(this.#owner.mtu, queue.maxSge)) return;
      let taken = 1;
      if (isRead) {
        taken = this.#packets.ask(entry, row, room, transmitter);
        if (taken === 0) return;
      } else {
        if (!this.#hasMemory(entry)) return;
        this.#packets.send(entry, row, room, transmitter);
      }
      const wasIdle = flight.isIdle;
      flight.sent(entry, taken);
      if (wasIdle) this.#timers.start(flight.isIdle);
    }
  }

  /**
   * Gives the next request its sequence numbers. False when it is invalid, and requests before it
   * are not answered.
   */
  #number(): boolean {
    const entry = this.#queue.entryAt(this.#flight.numbered);
    const problem = this.#queue.problemOf(entry, this.#maxRdAtomic, this.#pieces);
    if (problem !== completionStatuses.SUCCESS) {
      // Errors complete in order as well: requests before it are answered first.
      if (this.#flight.numbered === 0) this.#failFirst(problem);
      return false;
    }
    const isAtomic = this.#queue.opcodeOf(entry) >= sendOpcodes.fetchAdd;
    const packets = isAtomic ? 1 : Math.max(1, Math.ceil(this.#queue.bytesOf(entry) / this.#owner.mtu));
    this.#flight.number(entry, packets);
    return true;
  }

  /** The memory of the current request may have been closed since it was posted. */
  #hasMemory(entry: number): boolean {
    if (this.#packets.memory.resolve(entry)) return true;
    if (this.#flight.position === 0) this.#failFirst(completionStatuses.LOC_PROT_ERR);
    return false;
  }

  /** An ACK or a NAK. */
  onAcknowledge(psn: number, syndrome: number): void {
    const kind = syndrome & syndromes.kindMask;
    const isAck = kind === 0;
    if (!isAck && kind !== syndromes.rnrNak && kind !== syndromes.nak) return;
    const limit = sequenceDistance(psn, this.#flight.top);
    // An answer to a packet that was never sent is dropped; a NAK may ask for the next one.
    if (sequenceDistance(psn, this.#flight.unacked) < 0 || limit > 0 || (limit === 0 && isAck)) return;
    if (!this.#advance(isAck ? addSequence(psn, 1) : psn) || isAck || this.#flight.numbered === 0) return;
    const value = syndrome & syndromes.valueMask;
    if (kind === syndromes.rnrNak) this.#retryLater(value);
    else if (value !== nakCodes.sequence) this.#failFirst(statusOf(value));
    // Packets are missing at the peer. Packets after a request that it was not ready for are
    // missing as well.
    else if (!this.#timers.isPeerNotReady) this.#retry();
  }

  /** A part of the answer to a READ. */
  onReadResponse(psn: number, bytes: number, copies: CopyList, slab: SharedMemory, offset: number): void {
    const entry = this.#answered(psn, sendOpcodes.read, sendOpcodes.read);
    if (entry < 0) return;
    const index = this.#flight.indexOf(psn, entry);
    const at = index * this.#owner.mtu;
    if (bytes !== Math.min(this.#owner.mtu, this.#queue.bytesOf(entry) - at)) {
      this.#failFirst(completionStatuses.BAD_RESP_ERR);
      return;
    }
    if (!this.#incoming.resolve(entry) || !this.#incoming.cursor.scatter(copies, at, bytes, slab, offset)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    if (index === this.#flight.packetsOf(entry) - 1) this.#queue.answer(entry);
    this.#answeredTo(addSequence(psn, 1));
  }

  onAtomicAcknowledge(psn: number, low: number, high: number): void {
    const entry = this.#answered(psn, sendOpcodes.fetchAdd, sendOpcodes.compareSwap);
    if (entry < 0) return;
    if (!this.#queue.storeAtomicResult(entry, low, high, this.#pieces)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    this.#queue.answer(entry);
    this.#answeredTo(addSequence(psn, 1));
  }

  /**
   * The entry that an answer is for, after completing those before it: they were carried out first.
   * -1 if none.
   */
  #answered(psn: number, fromOpcode: number, toOpcode: number): number {
    const flight = this.#flight;
    if (sequenceDistance(psn, flight.unacked) < 0 || sequenceDistance(psn, flight.top) >= 0) return -1;
    if (!this.#advance(psn) || psn !== flight.unacked || flight.numbered === 0) return -1;
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
   * The peer has carried out everything before `to`: completes those requests. False when an answer
   * before it has not come; then it is requested again.
   */
  #advance(to: number): boolean {
    const flight = this.#flight;
    while (flight.numbered > 0) {
      const entry = this.#queue.entryAt(0);
      const needsAnswer = this.#queue.opcodeOf(entry) >= sendOpcodes.read && !this.#queue.isAnswered(entry);
      if (needsAnswer) {
        if (sequenceDistance(to, flight.unacked) <= 0 || flight.indexOf(to, entry) <= 0) break;
        if (!this.#isRecovering) this.#retry();
        return false;
      }
      const end = flight.endOf(entry);
      if (sequenceDistance(to, end) < 0) break;
      this.#moveTo(end);
      this.#shift();
      this.#completions.doneFirst(completionStatuses.SUCCESS);
    }
    this.#moveTo(to);
    return true;
  }

  /** Nothing before `to` needs to be retransmitted. */
  #moveTo(to: number): void {
    if (!this.#flight.advance(to)) return;
    this.#isRecovering = false;
    this.#retries.reset();
    this.#reads.advance(to);
    this.#timers.startAnew(this.#flight.isIdle);
  }

  /** The oldest request is about to leave the queue. */
  #shift(): void {
    const entry = this.#queue.entryAt(0);
    this.#packets.memory.forget(entry);
    this.#incoming.forget(entry);
    this.#flight.shift();
  }

  #retryLater(timerCode: number): void {
    if (!this.#retries.takeNotReady()) {
      this.#failFirst(completionStatuses.RNR_RETRY_EXC_ERR);
      return;
    }
    this.#rewind();
    this.#timers.waitForPeer(timerCode);
  }

  #retry(): void {
    if (!this.#retries.take()) {
      this.#failFirst(completionStatuses.RETRY_EXC_ERR);
      return;
    }
    this.#flight.halve();
    this.#isRecovering = true;
    this.#rewind();
    this.#timers.start(this.#flight.isIdle);
  }

  /** Retransmits from the oldest on. */
  #rewind(): void {
    this.#flight.rewind();
    this.#reads.rewind();
    this.#packets.askNext();
  }

  /** Time has passed. */
  tick(): void {
    const due = this.#timers.tick(this.#flight.isIdle || this.#flight.numbered === 0);
    if (due === 'retry') this.#retry();
    else if (due !== 'nothing') this.#probe(due === 'firstProbe');
  }

  /**
   * Probes: sends a packet once more, because its answer tells what was lost. The first probe is
   * the last packet, which is likely to be all that the peer has not answered. A peer that has
   * reported a gap does not report it again, so the next probe is the oldest packet.
   */
  #probe(isFirst: boolean): void {
    if (isFirst && this.#flight.repeatLast()) {
      this.#packets.askNext();
    } else {
      this.#flight.narrow();
      this.#rewind();
    }
  }

  /** The oldest request failed: its status tells why, and the QP is in error. */
  #failFirst(status: number): void {
    if (this.#flight.numbered > 0) this.#shift();
    this.#completions.doneFirst(status);
    this.#owner.fail(`a request failed with status ${status}`);
  }

  flush(): void {
    while (this.#queue.count > 0) this.#completions.doneFirst(completionStatuses.WR_FLUSH_ERR);
    this.#restart(0);
  }

  reset(): void {
    this.#queue.clear();
    this.#restart(0);
  }

  #restart(psn: number): void {
    this.#flight.restart(psn);
    this.#reads.clear();
    this.#timers.stop();
    this.#packets.clear();
    this.#incoming.clear();
    this.#isRecovering = false;
  }

  close(): void {
    this.#queue.close();
  }
}

function statusOf(nakCode: number): number {
  if (nakCode === nakCodes.access) return completionStatuses.REM_ACCESS_ERR;
  return nakCode === nakCodes.operation ? completionStatuses.REM_OP_ERR : completionStatuses.REM_INV_REQ_ERR;
}
