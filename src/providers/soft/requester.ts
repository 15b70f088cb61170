// The sending half of a QP: keeps posted requests until the peer has answered for them, and sends again from where the
// peer says it must (go-back-N).

import { UsageError } from '../../errors.ts';
import { copyMemory, SharedMemory } from '../../native/index.ts';
import {
  access,
  completionOpcodes,
  completionStatuses,
  read64,
  type SendBatch,
  sendFlags,
  sendOpcodes,
  sendRow,
  sgeRow,
} from '../../verbs/index.ts';
import type { SoftCq } from './completion-queue.ts';
import {
  addSequence,
  beginFrame,
  frameFlags,
  frameTypes,
  headerRow,
  MAX_MESSAGE_BYTES,
  nakReasons,
  sequenceDistance,
} from './frame.ts';
import { Pieces } from './pieces.ts';
import { type RegionTable, resolveSges } from './region.ts';

/** What a requester needs of its QP. */
export interface RequesterOwner {
  readonly number: number;
  readonly pd: object;
  readonly regions: RegionTable;
  /** Requests may go out now. */
  readonly isSending: boolean;
  readonly isLossy: boolean;
  /** Everything ends: the QP is in error, and what is outstanding is flushed. */
  fail(reason: string): void;
  /** Calls `retry` after some time. One at a time. */
  wait(ns: number, retry: () => void): void;
  cancelWait(): void;
  /** Carries a request out in the peer's mapped memory; false when it must go as a frame. */
  direct(words: Uint32Array, row: number, local: Pieces): boolean;
  /** Whether the memory behind a key is mapped here. */
  isMapped(rkey: number): boolean;
}

export interface RequesterSettings {
  readonly sqPsn: number;
  readonly maxRdAtomic: number;
  readonly retryCount: number;
  readonly rnrRetry: number;
  readonly timeout: number;
}

const FOR_EVER = 7;
const frameTypeOf = [
  frameTypes.send,
  frameTypes.send,
  frameTypes.write,
  frameTypes.write,
  frameTypes.read,
  frameTypes.fetchAdd,
  frameTypes.compareSwap,
];
const completionOpcodeOf = [
  completionOpcodes.send,
  completionOpcodes.send,
  completionOpcodes.write,
  completionOpcodes.write,
  completionOpcodes.read,
  completionOpcodes.fetchAdd,
  completionOpcodes.compareSwap,
];

/** What the 5-bit codes of the RNR timer mean, in us (InfiniBand specification, table "RNR NAK timer field"). */
const rnrTimersUs = [
  655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10_240,
  15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

export class Requester {
  readonly #owner: RequesterOwner;
  readonly #cq: SoftCq;
  readonly #entries: number;
  readonly #maxSge: number;
  readonly #signalAll: boolean;
  readonly #rowWords: number;
  readonly #words: Uint32Array;
  /** By entry: bytes of the message, and whether a read or atomic has its answer. */
  readonly #bytes: Uint32Array;
  readonly #isAnswered: Uint8Array;
  readonly #inline: SharedMemory | undefined;
  readonly #maxInlineBytes: number;
  readonly #pieces = new Pieces();
  #settings: RequesterSettings = { sqPsn: 0, maxRdAtomic: 1, retryCount: 7, rnrRetry: FOR_EVER, timeout: 14 };
  /** Oldest entry, how many there are, how many of those were sent. */
  #first = 0;
  #count = 0;
  #sent = 0;
  #firstSequence = 0;
  /** Reads and atomics among the sent, without an answer. */
  #readsUnderWay = 0;
  #isWaiting = false;
  #rnrRetriesLeft = 0;
  #retriesLeft = 0;

  constructor(
    owner: RequesterOwner,
    cq: SoftCq,
    spec: { sendRequests: number; maxSge: number; maxInlineBytes: number; signalAll: boolean },
  ) {
    this.#owner = owner;
    this.#cq = cq;
    this.#entries = spec.sendRequests;
    this.#maxSge = spec.maxSge;
    this.#signalAll = spec.signalAll;
    this.#maxInlineBytes = spec.maxInlineBytes;
    this.#rowWords = sendRow.sge + spec.maxSge * sgeRow.words;
    this.#words = new Uint32Array(spec.sendRequests * this.#rowWords);
    this.#bytes = new Uint32Array(spec.sendRequests);
    this.#isAnswered = new Uint8Array(spec.sendRequests);
    const inlineBytes = spec.sendRequests * spec.maxInlineBytes;
    this.#inline = inlineBytes === 0 ? undefined : SharedMemory.create({ sizeBytes: inlineBytes, name: 'inline' });
  }

  start(settings: RequesterSettings): void {
    this.#settings = settings;
    this.#firstSequence = settings.sqPsn;
    this.#resetRetries();
  }

  /** Changed in SQD. */
  adjust(settings: Partial<RequesterSettings>): void {
    this.#settings = { ...this.#settings, ...settings };
  }

  get count(): number {
    return this.#count;
  }

  get unsent(): number {
    return this.#count - this.#sent;
  }

  /** Takes as many rows as there is room for. */
  post(batch: SendBatch): number {
    const { words, rowWords, count } = batch;
    for (let index = 0; index < count; index++) {
      const row = index * rowWords;
      if (this.#count === 0 && this.#tryDirect(words, row)) continue;
      if (this.#count === this.#entries) return index;
      this.#store(words, row);
    }
    return count;
  }

  /** A request that can be carried out at once in the peer's memory needs no place in the queue. */
  #tryDirect(words: Uint32Array, row: number): boolean {
    const opcode = words[row + sendRow.opcode];
    const flags = words[row + sendRow.flags];
    const isCandidate =
      opcode === sendOpcodes.write || (opcode >= sendOpcodes.read && opcode <= sendOpcodes.compareSwap);
    if (!isCandidate || !this.#owner.isSending) return false;
    const { pd, regions } = this.#owner;
    const sges = words[row + sendRow.sgeCount];
    const isRead = opcode !== sendOpcodes.write;
    if (sges > this.#maxSge || (isRead && this.#settings.maxRdAtomic === 0)) return false;
    const pieces = this.#pieces;
    pieces.clear();
    if (!resolveSges(regions, pd, words, row + sendRow.sge, sges, isRead ? access.localWrite : 0, pieces)) return false;
    const bytes = pieces.totalBytes;
    if (bytes > MAX_MESSAGE_BYTES || (opcode >= sendOpcodes.fetchAdd && bytes !== 8)) return false;
    // Inline says "taken at once", which this is; but one that is wrong is refused where it is stored.
    if ((flags & sendFlags.inline) !== 0 && (isRead || bytes > this.#maxInlineBytes)) return false;
    if (!this.#owner.direct(words, row, pieces)) return false;
    if (this.#signalAll || (flags & sendFlags.signaled) !== 0) {
      this.#push(words, row, completionStatuses.SUCCESS, isRead ? bytes : 0);
    }
    return true;
  }

  #push(words: Uint32Array, row: number, status: number, bytes: number): void {
    const low = words[row + sendRow.wrId];
    const high = words[row + sendRow.wrId + 1];
    const opcode = completionOpcodeOf[words[row + sendRow.opcode]];
    const isKept = this.#cq.push(low, high, status, opcode, bytes, this.#owner.number, 0, false, false);
    if (!isKept) this.#owner.fail('its CQ is full');
  }

  #store(from: Uint32Array, row: number): void {
    const opcode = from[row + sendRow.opcode];
    const sges = from[row + sendRow.sgeCount];
    if (opcode > sendOpcodes.compareSwap) throw new UsageError(`a send request with opcode ${opcode}`);
    if (sges > this.#maxSge) {
      throw new UsageError(`a send request with ${sges} scatter-gather entries: the QP takes ${this.#maxSge}`);
    }
    const entry = (this.#first + this.#count) % this.#entries;
    const to = entry * this.#rowWords;
    const used = sendRow.sge + sges * sgeRow.words;
    for (let word = 0; word < used; word++) this.#words[to + word] = from[row + word];
    let bytes = 0;
    for (let sge = 0; sge < sges; sge++) bytes += from[row + sendRow.sge + sge * sgeRow.words + sgeRow.length];
    if ((from[row + sendRow.flags] & sendFlags.inline) !== 0) this.#takeInline(entry, bytes);
    this.#bytes[entry] = Math.min(bytes, 0xffff_ffff);
    this.#isAnswered[entry] = 0;
    this.#count++;
  }

  /** Copies the data out now; a bad key shows when the request's turn comes. */
  #takeInline(entry: number, bytes: number): void {
    const row = entry * this.#rowWords;
    if (bytes > this.#maxInlineBytes || this.#words[row + sendRow.opcode] >= sendOpcodes.read) {
      throw new UsageError(`an inline request of ${bytes} bytes: sends and writes take up to ${this.#maxInlineBytes}`);
    }
    const sges = this.#words[row + sendRow.sgeCount];
    const { pd, regions } = this.#owner;
    this.#nameRegions(row, sges);
    this.#pieces.clear();
    if (
      this.#inline === undefined ||
      !resolveSges(regions, pd, this.#words, row + sendRow.sge, sges, 0, this.#pieces)
    ) {
      // Left as an ordinary request, it fails as one.
      this.#words[row + sendRow.flags] &= ~sendFlags.inline;
      return;
    }
    let at = entry * this.#maxInlineBytes;
    for (let piece = 0; piece < this.#pieces.count; piece++) {
      copyMemory(
        this.#inline,
        at,
        this.#pieces.memories[piece],
        this.#pieces.offsets[piece],
        this.#pieces.lengths[piece],
      );
      at += this.#pieces.lengths[piece];
    }
  }

  /** Inline data needs no key: where there is none that fits, the address says what is meant. */
  #nameRegions(row: number, sges: number): void {
    const { pd, regions } = this.#owner;
    for (let sge = 0; sge < sges; sge++) {
      const at = row + sendRow.sge + sge * sgeRow.words;
      if (regions.local(this.#words[at + sgeRow.lkey], pd) !== undefined) continue;
      const region = regions.containing(read64(this.#words, at + sgeRow.address), pd);
      if (region !== undefined) this.#words[at + sgeRow.lkey] = region.lkey;
    }
  }

  /** The next request as a frame. Carries out what can be done directly on the way. */
  nextFrame(header: Uint32Array, payload: Pieces): boolean {
    while (this.#sent < this.#count && this.#owner.isSending && !this.#isWaiting) {
      const entry = (this.#first + this.#sent) % this.#entries;
      const row = entry * this.#rowWords;
      const opcode = this.#words[row + sendRow.opcode];
      const flags = this.#words[row + sendRow.flags];
      const isRead = opcode >= sendOpcodes.read;
      if ((flags & sendFlags.fence) !== 0 && this.#readsUnderWay > 0) return false;
      if (isRead && this.#readsUnderWay >= Math.max(1, this.#settings.maxRdAtomic)) return false;
      const problem = this.#localProblem(entry, row, opcode, isRead, payload);
      if (problem !== completionStatuses.SUCCESS) {
        // Errors come in order, too: those before it are answered first.
        if (this.#sent > 0) return false;
        this.#failFirst(problem);
        return false;
      }
      if (opcode !== sendOpcodes.send && opcode !== sendOpcodes.sendWithImm && opcode !== sendOpcodes.writeWithImm) {
        // Directly in the peer's memory, once all before it are done: worth waiting for, or a queue that is never empty
        // would never get there.
        if (this.#sent > 0 && this.#owner.isMapped(this.#words[row + sendRow.rkey])) return false;
        if (this.#sent === 0 && this.#owner.direct(this.#words, row, payload)) {
          this.#completeFirst(completionStatuses.SUCCESS, false);
          continue;
        }
      }
      this.#fill(header, entry, row, opcode, flags, isRead ? 0 : payload.totalBytes);
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

  /** A status other than SUCCESS when the request is wrong by what is known here. */
  #localProblem(entry: number, row: number, opcode: number, isRead: boolean, payload: Pieces): number {
    payload.clear();
    const bytes = this.#bytes[entry];
    if (bytes > MAX_MESSAGE_BYTES) return completionStatuses.LOC_LEN_ERR;
    if (isRead && this.#settings.maxRdAtomic === 0) return completionStatuses.LOC_QP_OP_ERR;
    const isAtomic = opcode >= sendOpcodes.fetchAdd;
    if (isAtomic && bytes !== 8) return completionStatuses.LOC_LEN_ERR;
    if ((this.#words[row + sendRow.flags] & sendFlags.inline) !== 0 && this.#inline !== undefined) {
      payload.add(this.#inline, entry * this.#maxInlineBytes, bytes);
      return completionStatuses.SUCCESS;
    }
    const sges = this.#words[row + sendRow.sgeCount];
    const { pd, regions } = this.#owner;
    const needed = isRead ? access.localWrite : 0;
    const isFine = resolveSges(regions, pd, this.#words, row + sendRow.sge, sges, needed, payload);
    return isFine ? completionStatuses.SUCCESS : completionStatuses.LOC_PROT_ERR;
  }

  #fill(header: Uint32Array, entry: number, row: number, opcode: number, flags: number, payloadBytes: number): void {
    const words = this.#words;
    const hasImm = opcode === sendOpcodes.sendWithImm || opcode === sendOpcodes.writeWithImm;
    const isSolicited = (flags & sendFlags.solicited) !== 0 && (hasImm || opcode === sendOpcodes.send);
    const bits = (hasImm ? frameFlags.hasImm : 0) | (isSolicited ? frameFlags.solicited : 0);
    beginFrame(header, frameTypeOf[opcode], bits, addSequence(this.#firstSequence, this.#sent), payloadBytes);
    if (hasImm) header[headerRow.imm] = words[row + sendRow.imm];
    if (opcode < sendOpcodes.write) return;
    header[headerRow.rkey] = words[row + sendRow.rkey];
    header[headerRow.remoteAddress] = words[row + sendRow.remoteAddress];
    header[headerRow.remoteAddress + 1] = words[row + sendRow.remoteAddress + 1];
    if (opcode === sendOpcodes.read) header[headerRow.operandA] = this.#bytes[entry];
    if (opcode < sendOpcodes.fetchAdd) return;
    for (let word = 0; word < 2; word++) {
      header[headerRow.operandA + word] = words[row + sendRow.compareAdd + word];
      header[headerRow.operandB + word] = words[row + sendRow.swap + word];
    }
  }

  /** The peer has carried out everything up to this number. Says what is wrong with that, if anything. */
  onAck(sequence: number): string | undefined {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0) return undefined;
    if (distance >= this.#sent) return this.#strange('an answer to a request that was not sent');
    return this.#completeThrough(distance + 1);
  }

  /** Where frames come twice or late, an answer may be to what is about to be sent again. It is answered again, too. */
  #strange(problem: string): string | undefined {
    return this.#owner.isLossy ? undefined : problem;
  }

  /** Completes the first `count` entries. */
  #completeThrough(count: number): string | undefined {
    for (let done = 0; done < count; done++) {
      const entry = this.#first;
      const isRead = this.#words[entry * this.#rowWords + sendRow.opcode] >= sendOpcodes.read;
      if (isRead && this.#isAnswered[entry] === 0) {
        if (!this.#owner.isLossy) return 'an acknowledgement where a read or an atomic needs its answer';
        this.#rewind();
        return undefined;
      }
      this.#completeFirst(completionStatuses.SUCCESS, true);
    }
    this.#resetRetries();
    if (this.#owner.isLossy) this.#startTimer();
    return undefined;
  }

  /** Where the answer to a read goes. False when it is not wanted: it came before, or is no answer to anything. */
  onReadResponse(sequence: number, payloadBytes: number, into: Pieces): boolean {
    const entry = this.#answered(sequence, sendOpcodes.read, sendOpcodes.read);
    if (entry < 0) return false;
    const row = entry * this.#rowWords;
    if (payloadBytes !== this.#bytes[entry]) {
      this.#failFirst(completionStatuses.BAD_RESP_ERR);
      return false;
    }
    const { pd, regions } = this.#owner;
    const sges = this.#words[row + sendRow.sgeCount];
    if (resolveSges(regions, pd, this.#words, row + sendRow.sge, sges, access.localWrite, into)) return true;
    this.#failFirst(completionStatuses.LOC_PROT_ERR);
    return false;
  }

  /** The data is in its place. */
  onReadDone(sequence: number): void {
    if (this.#answered(sequence, sendOpcodes.read, sendOpcodes.read) >= 0) this.#answerFirst();
  }

  /** The answer to a read did not arrive whole: ask again. */
  onCorruptAnswer(): void {
    if (this.#sent > 0) this.#retryNow();
  }

  onAtomicResponse(sequence: number, low: number, high: number): void {
    const entry = this.#answered(sequence, sendOpcodes.fetchAdd, sendOpcodes.compareSwap);
    if (entry < 0) return;
    const row = entry * this.#rowWords;
    const sges = this.#words[row + sendRow.sgeCount];
    const { pd, regions } = this.#owner;
    this.#pieces.clear();
    if (!resolveSges(regions, pd, this.#words, row + sendRow.sge, sges, access.localWrite, this.#pieces)) {
      this.#failFirst(completionStatuses.LOC_PROT_ERR);
      return;
    }
    storeHalves(this.#pieces, low, high);
    this.#answerFirst();
  }

  #answerFirst(): void {
    this.#isAnswered[this.#first] = 1;
    this.#completeThrough(1);
  }

  /**
   * The entry that an answer is for, after completing those before it: they were carried out first. -1 when there is
   * none.
   */
  #answered(sequence: number, fromOpcode: number, toOpcode: number): number {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0 || distance >= this.#sent) return -1;
    if (distance > 0 && this.#completeThrough(distance) !== undefined) return -1;
    // What came before may have been missing an answer, and everything is sent again.
    if (sequenceDistance(sequence, this.#firstSequence) !== 0 || this.#sent === 0) return -1;
    const opcode = this.#words[this.#first * this.#rowWords + sendRow.opcode];
    return opcode >= fromOpcode && opcode <= toOpcode ? this.#first : -1;
  }

  /** The peer refused a request. Says what is wrong with that, if anything. */
  onNak(sequence: number, reason: number, timerCode: number): string | undefined {
    const distance = sequenceDistance(sequence, this.#firstSequence);
    if (distance < 0 || this.#count === 0) return undefined;
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
    if (this.#rnrRetriesLeft === 0) {
      this.#failFirst(completionStatuses.RNR_RETRY_EXC_ERR);
      return;
    }
    if (this.#settings.rnrRetry !== FOR_EVER) this.#rnrRetriesLeft--;
    this.#rewind();
    this.#isWaiting = true;
    this.#owner.wait(rnrTimersUs[timerCode & 31] * 1000, () => {
      this.#isWaiting = false;
    });
  }

  #retryNow(): void {
    if (this.#retriesLeft === 0) {
      this.#failFirst(completionStatuses.RETRY_EXC_ERR);
      return;
    }
    this.#retriesLeft--;
    this.#rewind();
  }

  #startTimer(): void {
    if (this.#isWaiting || this.#settings.timeout === 0) return;
    this.#owner.cancelWait();
    if (this.#sent > 0) this.#owner.wait(4096 * 2 ** this.#settings.timeout, () => this.#retryNow());
  }

  /** Sends again from the oldest on. */
  #rewind(): void {
    this.#sent = 0;
    this.#readsUnderWay = 0;
  }

  #resetRetries(): void {
    this.#rnrRetriesLeft = this.#settings.rnrRetry === FOR_EVER ? FOR_EVER : this.#settings.rnrRetry;
    this.#retriesLeft = this.#settings.retryCount;
  }

  /** The oldest request failed: its status tells why, and the QP is in error. */
  #failFirst(status: number): void {
    this.#completeFirst(status, this.#sent > 0);
    this.#owner.fail(`a request failed with status ${status}`);
  }

  /** The link is broken: the oldest request was never answered. */
  failUnanswered(): void {
    if (this.#count > 0) this.#completeFirst(completionStatuses.RETRY_EXC_ERR, this.#sent > 0);
  }

  #completeFirst(status: number, wasSent: boolean): void {
    const entry = this.#first;
    const row = entry * this.#rowWords;
    const words = this.#words;
    const opcode = words[row + sendRow.opcode];
    const isRead = opcode >= sendOpcodes.read;
    if (wasSent) {
      this.#sent--;
      if (isRead) this.#readsUnderWay--;
    }
    this.#first = this.#first + 1 === this.#entries ? 0 : this.#first + 1;
    this.#count--;
    this.#firstSequence = wasSent ? addSequence(this.#firstSequence, 1) : this.#firstSequence;
    const isSignaled = this.#signalAll || (words[row + sendRow.flags] & sendFlags.signaled) !== 0;
    if (status === completionStatuses.SUCCESS && !isSignaled) return;
    this.#push(words, row, status, isRead ? this.#bytes[entry] : 0);
  }

  /** Everything left, in order. */
  flush(): void {
    this.#owner.cancelWait();
    this.#isWaiting = false;
    while (this.#count > 0) this.#completeFirst(completionStatuses.WR_FLUSH_ERR, this.#sent > 0);
  }

  /** As new: nothing is completed. */
  reset(): void {
    this.#owner.cancelWait();
    this.#isWaiting = false;
    this.#count = 0;
    this.#rewind();
  }

  close(): void {
    this.#inline?.close();
  }
}

/** Eight bytes, least significant first, into one or more pieces. */
export function storeHalves(pieces: Pieces, low: number, high: number): void {
  let at = 0;
  for (let piece = 0; piece < pieces.count; piece++) {
    const bytes = new Uint8Array(pieces.memories[piece].buffer, pieces.offsets[piece], pieces.lengths[piece]);
    for (let index = 0; index < bytes.length; index++, at++) {
      bytes[index] = (at < 4 ? low : high) >>> ((at & 3) * 8);
    }
  }
}
