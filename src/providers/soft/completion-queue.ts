// The soft device's completion queues: a ring of rows, filled by the device and emptied by polls.

import {
  type CompletionBatch,
  completionFlags,
  completionRow,
  completionStatuses,
  type DrivenChannel,
  type ProviderCq,
} from '../../verbs/index.ts';

export interface CompletionOwner {
  /** Does what is due; completions may be added. */
  progress(): void;
  /** A program is going to sleep: what comes in must wake it. */
  prepareSleep(): void;
  cqOverrun(cq: SoftCq): void;
}

const ROW = completionRow.words;

export class SoftCq implements ProviderCq {
  readonly #owner: CompletionOwner;
  readonly #channel: DrivenChannel | undefined;
  readonly #rows: Uint32Array;
  readonly #entries: number;
  #first = 0;
  #count = 0;
  #armed: 'no' | 'any' | 'solicited' = 'no';
  #isOverrun = false;
  #polls = 0;
  isClosed = false;

  constructor(owner: CompletionOwner, entries: number, channel: DrivenChannel | undefined) {
    this.#owner = owner;
    this.#entries = entries;
    this.#channel = channel;
    this.#rows = new Uint32Array(entries * ROW);
  }

  poll(batch: CompletionBatch): number {
    // A program that always finds completions must learn of new peers and of peers that have ended
    // as well.
    if (this.#count === 0 || (++this.#polls & 7) === 0) this.#owner.progress();
    const { words, capacity } = batch;
    const count = Math.min(capacity, this.#count);
    for (let index = 0; index < count; index++) {
      const from = this.#first * ROW;
      const to = index * ROW;
      for (let word = 0; word < ROW; word++) words[to + word] = this.#rows[from + word];
      this.#first = this.#first + 1 === this.#entries ? 0 : this.#first + 1;
    }
    this.#count -= count;
    return count;
  }

  arm(solicitedOnly: boolean): void {
    if (this.#armed !== 'any') this.#armed = solicitedOnly ? 'solicited' : 'any';
    this.#owner.prepareSleep();
  }

  /** False when there was no room: then the queue is overrun, and its QPs fail. */
  push(
    wrIdLow: number,
    wrIdHigh: number,
    status: number,
    opcode: number,
    byteLength: number,
    qpNumber: number,
    imm: number,
    hasImm: boolean,
    isSolicited: boolean,
    sourceQp = 0,
  ): boolean {
    if (this.#isOverrun || this.#count === this.#entries) {
      if (!this.#isOverrun) {
        this.#isOverrun = true;
        this.#owner.cqOverrun(this);
      }
      return false;
    }
    const row = ((this.#first + this.#count) % this.#entries) * ROW;
    const rows = this.#rows;
    rows[row + completionRow.wrId] = wrIdLow;
    rows[row + completionRow.wrId + 1] = wrIdHigh;
    rows[row + completionRow.status] = status;
    rows[row + completionRow.opcode] = opcode;
    rows[row + completionRow.vendorError] = 0;
    rows[row + completionRow.byteLength] = byteLength;
    rows[row + completionRow.imm] = imm;
    rows[row + completionRow.qpNumber] = qpNumber;
    rows[row + completionRow.sourceQp] = sourceQp;
    // Only datagrams name their sender, and they have a route header.
    const route = sourceQp === 0 ? 0 : completionFlags.globalRoute;
    const solicited = isSolicited ? completionFlags.solicited : 0;
    rows[row + completionRow.flags] = (hasImm ? completionFlags.hasImm : 0) | route | solicited;
    this.#count++;
    const isEvent = this.#armed === 'any' || isSolicited || status !== completionStatuses.SUCCESS;
    if (this.#armed !== 'no' && isEvent) {
      this.#armed = 'no';
      this.#channel?.notify(this);
    }
    return true;
  }

  get isBroken(): boolean {
    return this.#isOverrun;
  }

  close(): void {
    this.isClosed = true;
    this.#channel?.forget(this);
  }
}
