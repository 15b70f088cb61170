// The sending half of a QP: keeps posted requests until the peer has answered them, and retransmits
// from the request that the peer names (go-back-N).

import { access, completionStatuses, type SendBatch, sendFlags, sendOpcodes, sendRow } from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import { beginFrame, frameTypes, MAX_MESSAGE_BYTES, nakReasons } from './frame.ts';
import { Pieces } from './pieces.ts';
import { type RegionTable, resolveSges } from './region.ts';
import { fillRequest } from './request-frame.ts';
import { type RequesterSettings, Retries, type RetrySettings, rnrTimerNs } from './retries.ts';
import { SendCompletions } from './send-completions.ts';
import { SendQueue, type SendQueueSpec } from './send-queue.ts';
import { addSequence, sequenceDistance } from './sequence.ts';

/** What a requester needs of its QP. */
export interface RequesterOwner {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  /** Requests may go out now. */
  readonly isSending: boolean;
  readonly isLossy: boolean;
  readonly sparesAcks: boolean;
  /** Brings the QP to ERR, and flushes what is outstanding. */
  fail(reason: string): void;
  /** Calls `retry` after some time. One at a time. */
  wait(ns: number, retry: () => void): void;
  cancelWait(): void;
  /** Carries a request out in the peer's mapped memory; false when it must go as a frame. */
  direct(words: Uint32Array, row: number, local: Pieces): boolean;
  /** Whether the memory behind a key is mapped here. */
  isMapped(rkey: number): boolean;
}

export class Requester {
  readonly #owner: RequesterOwner;
  readonly #queue: SendQueue;
  readonly #completions: SendCompletions;
  readonly #retries = new Retries();
  readonly #pieces = new Pieces();
  #maxRdAtomic = 1;
  #timeout = 14;
  /** How many of the oldest requests were sent, and the number of the very oldest. */
  #sent = 0;
  #firstSequence = 0;
  /** Reads and atomics among the sent, without an answer. */
  #readsUnderWay = 0;
  #isWaiting = false;
  /** The number of the last request whose acknowledgement was asked for by a frame of its own. */
  #askedFor = -1;

  constructor(owner: RequesterOwner, cq: SoftCq, spec: SendQueueSpec & { readonly signalAll: boolean }) {
    this.#owner = owner;
    this.#queue = new SendQueue(owner, spec);
    this.#completions = new SendCompletions(owner, cq, this.#queue, spec.signalAll);
  }

  start(settings: RequesterSettings): void {
    this.#firstSequence = settings.sqPsn;
    this.#maxRdAtomic = settings.maxRdAtomic;
    this.adjust(settings);
  }

  adjust(settings: Partial<RetrySettings>): void {
    this.#timeout = settings.timeout ?? this.#timeout;
    this.#retries.adjust(settings);
  }

  get count(): number {
    return this.#queue.count;
  }

  get unsent(): number {
    return this.#queue.count - this.#sent;
  }

  /** Takes as many rows as there is room for. */
  post(batch: SendBatch): number {
    const { words, rowWords, count } = batch;
    for (let index = 0; index < count; index++) {
      const row = index * rowWords;
      if (this.#queue.count === 0 && this.#tryDirect(words, row)) continue;
      if (this.#queue.isFull) return index;
      this.#queue.store(words, row);
    }
    return count;
  }

  /**
   * Carries a request out in the peer's memory at once, if that is mapped: it needs no place in the
   * queue.
   */
  #tryDirect(words: Uint32Array, row: number): boolean {
    const opcode = words[row + sendRow.opcode];
    const flags = words[row + sendRow.flags];
    const isCandidate =
      opcode === sendOpcodes.write || (opcode >= sendOpcodes.read && opcode <= sendOpcodes.compareSwap);
    if (!isCandidate || !this.#owner.isSending) return false;
    const { pd, regions } = this.#owner;
    const sges = words[row + sendRow.sgeCount];
    const isRead = opcode !== sendOpcodes.write;
    if (sges > this.#queue.maxSge || (isRead && this.#maxRdAtomic === 0)) return false;
    const pieces = this.#pieces;
    pieces.clear();
    if (!resolveSges(regions, pd, words, row + sendRow.sge, sges, isRead ? access.localWrite : 0, pieces)) return false;
    const bytes = pieces.totalBytes;
    if (bytes > MAX_MESSAGE_BYTES || (opcode >= sendOpcodes.fetchAdd && bytes !== 8)) return false;
    // Inline data is copied when it is posted, as it is here; but a wrong inline request is refused
    // where it is stored.
    if ((flags & sendFlags.inline) !== 0 && (isRead || bytes > this.#queue.maxInlineBytes)) return false;
    if (!this.#owner.direct(words, row, pieces)) return false;
    this.#completions.done(words, row, completionStatuses.SUCCESS, bytes);
    return true;
  }

  /** The next request as a frame. Carries out what can be done directly on the way. */
  nextFrame(header: Uint32Array, payload: Pieces): boolean {
    const queue = this.#queue;
    const { words } = queue;
    while (this.#sent < queue.count && this.#owner.isSending && !this.#isWaiting) {
      const entry = queue.entryAt(this.#sent);
      const row = queue.rowOf(entry);
      const opcode = words[row + sendRow.opcode];
      const flags = words[row + sendRow.flags];
      const isRead = opcode >= sendOpcodes.read;
      if ((flags & sendFlags.fence) !== 0 && this.#readsUnderWay > 0) return false;
      if (isRead && this.#readsUnderWay >= Math.max(1, this.#maxRdAtomic)) return false;
      const problem = queue.problemOf(entry, this.#maxRdAtomic, payload);
      if (problem !== completionStatuses.SUCCESS) {
        // Errors complete in order as well: requests before it are answered first.
        if (this.#sent > 0) return this.#askForAck(header);
        this.#failFirst(problem);
        return false;
      }
      if (opcode !== sendOpcodes.send && opcode !== sendOpcodes.sendWithImm && opcode !== sendOpcodes.writeWithImm) {
        // It is carried out in the peer's memory once all requests before it are done. That is
        // worth waiting for: otherwise a queue that is never empty would send everything as frames.
        if (this.#sent > 0 && this.#owner.isMapped(words[row + sendRow.rkey])) return false;
        if (this.#sent === 0 && this.#owner.direct(words, row, payload)) {
          this.#completeFirst(completionStatuses.SUCCESS, false);
          continue;
        }
      }
      const sequence = addSequence(this.#firstSequence, this.#sent);
      fillRequest(header, words, row, sequence, queue.bytesOf(entry), this.#wantsAck(row));
      if (isRead) {
        payload.clear();
        this.#readsUnderWay++;
      }
      this.#sent++;
      if (this.#owner.isLossy) this.#startTimer();
      return true;
    }
    return false;
  }

  /** Once for what has been sent so far; false when that was asked for already. */
  #askForAck(header: Uint32Array): boolean {
    const last = addSequence(this.#firstSequence, this.#sent - 1);
    if (!this.#owner.sparesAcks || last === this.#askedFor) return false;
    this.#askedFor = last;
    beginFrame(header, frameTypes.ackRequest, 0, last, 0);
    return true;
  }

  /** Where acknowledgements cost a system call, requests without a completion spare theirs. */
  #wantsAck(row: number): boolean {
    const { sparesAcks, isLossy } = this.#owner;
    return !sparesAcks || isLossy || this.#completions.isSignaled(row) || this.#queue.isHalfFull;
  }

  /**
   * The peer has carried out everything up to this number. Returns the protocol error, if it is
   * one.
   */
  onAck(sequence: number): string | undefined {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0) return undefined;
    if (distance >= this.#sent) return this.#strange('an answer to a request that was not sent');
    return this.#completeThrough(distance + 1);
  }

  /**
   * Where frames come twice or late, an answer may be to a request that is about to be
   * retransmitted, which is then answered again.
   */
  #strange(problem: string): string | undefined {
    return this.#owner.isLossy ? undefined : problem;
  }

  /** Completes the first `count` entries. */
  #completeThrough(count: number): string | undefined {
    for (let done = 0; done < count; done++) {
      const entry = this.#queue.entryAt(0);
      if (this.#queue.opcodeOf(entry) >= sendOpcodes.read && !this.#queue.isAnswered(entry)) {
        if (!this.#owner.isLossy) return 'an acknowledgement where a read or an atomic needs its answer';
        this.#rewind();
        return undefined;
      }
      this.#completeFirst(completionStatuses.SUCCESS, true);
    }
    this.#retries.reset();
    if (this.#owner.isLossy) this.#startTimer();
    return undefined;
  }

  /** Fills in where the answer to a read goes. False when it came before, or answers no request. */
  onReadResponse(sequence: number, payloadBytes: number, into: Pieces): boolean {
    const entry = this.#answered(sequence, sendOpcodes.read, sendOpcodes.read);
    if (entry < 0) return false;
    if (payloadBytes !== this.#queue.bytesOf(entry)) {
      this.#failFirst(completionStatuses.BAD_RESP_ERR);
      return false;
    }
    if (this.#queue.resolve(entry, access.localWrite, into)) return true;
    this.#failFirst(completionStatuses.LOC_PROT_ERR);
    return false;
  }

  /** The data is in its place. */
  onReadDone(sequence: number): void {
    if (this.#answered(sequence, sendOpcodes.read, sendOpcodes.read) >= 0) this.#answerFirst();
  }

  /** The answer to a read is corrupt: the read is sent again. */
  onCorruptAnswer(): void {
    if (this.#sent > 0) this.#retryNow();
  }

  onAtomicResponse(sequence: number, low: number, high: number): void {
    const entry = this.#answered(sequence, sendOpcodes.fetchAdd, sendOpcodes.compareSwap);
    if (entry < 0) return;
    if (!this.#queue.storeAtomicResult(entry, low, high, this.#pieces)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    this.#answerFirst();
  }

  #answerFirst(): void {
    this.#queue.answer(this.#queue.entryAt(0));
    this.#completeThrough(1);
  }

  /**
   * The entry that an answer is for, after completing those before it: they were carried out first.
   * -1 when there is none.
   */
  #answered(sequence: number, fromOpcode: number, toOpcode: number): number {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0 || distance >= this.#sent) return -1;
    if (distance > 0 && this.#completeThrough(distance) !== undefined) return -1;
    // An answer before it may be missing; then everything is retransmitted.
    if (sequenceDistance(sequence, this.#firstSequence) !== 0 || this.#sent === 0) return -1;
    const entry = this.#queue.entryAt(0);
    const opcode = this.#queue.opcodeOf(entry);
    return opcode >= fromOpcode && opcode <= toOpcode ? entry : -1;
  }

  /** The peer refused a request. Returns the protocol error, if it is one. */
  onNak(sequence: number, reason: number, timerCode: number): string | undefined {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0 || this.#queue.count === 0) return undefined;
    const isEarly = distance > this.#sent || (distance === this.#sent && reason !== nakReasons.sequence);
    if (isEarly) return this.#strange('a refusal of a request that was not sent');
    const problem = distance > 0 ? this.#completeThrough(distance) : undefined;
    if (problem !== undefined || this.#sent === 0) return problem;
    switch (reason) {
      case nakReasons.notReady:
        this.#retryLater(timerCode);
        break;
      case nakReasons.sequence:
        this.#retryNow();
        break;
      case nakReasons.invalid:
        this.#failFirst(completionStatuses.REM_INV_REQ_ERR);
        break;
      case nakReasons.access:
        this.#failFirst(completionStatuses.REM_ACCESS_ERR);
        break;
      default:
        this.#failFirst(completionStatuses.REM_OP_ERR);
    }
    return undefined;
  }

  #retryLater(timerCode: number): void {
    if (!this.#retries.takeNotReady()) {
      this.#failFirst(completionStatuses.RNR_RETRY_EXC_ERR);
      return;
    }
    this.#rewind();
    this.#isWaiting = true;
    this.#owner.wait(rnrTimerNs(timerCode), () => {
      this.#isWaiting = false;
    });
  }

  #retryNow(): void {
    if (!this.#retries.take()) {
      this.#failFirst(completionStatuses.RETRY_EXC_ERR);
      return;
    }
    this.#rewind();
  }

  #startTimer(): void {
    if (this.#isWaiting || this.#timeout === 0) return;
    this.#owner.cancelWait();
    if (this.#sent > 0) this.#owner.wait(4096 * 2 ** this.#timeout, () => this.#retryNow());
  }

  /** Retransmits from the oldest request on. */
  #rewind(): void {
    this.#sent = 0;
    this.#askedFor = -1;
    this.#readsUnderWay = 0;
  }

  /** The oldest request failed: its status tells why, and the QP is in error. */
  #failFirst(status: number): void {
    this.#completeFirst(status, this.#sent > 0);
    this.#owner.fail(`a request failed with status ${status}`);
  }

  /** The link is broken: the oldest request was never answered. */
  failUnanswered(): void {
    if (this.#queue.count > 0) this.#completeFirst(completionStatuses.RETRY_EXC_ERR, this.#sent > 0);
  }

  #completeFirst(status: number, wasSent: boolean): void {
    if (wasSent) {
      this.#sent--;
      if (this.#queue.opcodeOf(this.#queue.entryAt(0)) >= sendOpcodes.read) this.#readsUnderWay--;
      this.#firstSequence = addSequence(this.#firstSequence, 1);
    }
    this.#completions.doneFirst(status);
  }

  /** Flushes all requests, in order. */
  flush(): void {
    this.#owner.cancelWait();
    this.#isWaiting = false;
    while (this.#queue.count > 0) this.#completeFirst(completionStatuses.WR_FLUSH_ERR, this.#sent > 0);
  }

  /** Drops everything without completions. */
  reset(): void {
    this.#owner.cancelWait();
    this.#isWaiting = false;
    this.#queue.clear();
    this.#rewind();
  }

  close(): void {
    this.#queue.close();
  }
}
