// Requests under way, as sequence numbers: which ones each request takes, which were sent, and
// which the peer has answered. How many may be under way is a window that grows with every answer,
// and shrinks with every loss.
//
// A request takes as many numbers as it has packets; a READ as many as its answer has.

import { sendOpcodes } from '../../../verbs/index.ts';
import type { SendQueue } from '../send-queue.ts';
import { addSequence, sequenceDistance } from '../sequence.ts';

/**
 * Limits of packets under way: what a peer's socket buffer holds for sure, and the most that is
 * faster.
 */
const FIRST_WINDOW = 64;
const MIN_WINDOW = 4;
const MAX_WINDOW = 512;

export class Flight {
  readonly #queue: SendQueue;
  /** By entry: its first sequence number, and how many it takes. */
  readonly #first: Uint32Array;
  readonly #packets: Uint32Array;
  #nextFree = 0;
  /** How many of the oldest requests have their numbers. */
  numbered = 0;
  /** The oldest number that is not answered, and one past the highest that was ever sent. */
  unacked = 0;
  top = 0;
  /** The number to be sent next, and which request it is of, counted from the oldest. */
  next = 0;
  position = 0;
  window = FIRST_WINDOW;

  constructor(queue: SendQueue, requests: number) {
    this.#queue = queue;
    this.#first = new Uint32Array(requests);
    this.#packets = new Uint32Array(requests);
  }

  get isIdle(): boolean {
    return this.top === this.unacked;
  }

  /** How many more packets may be sent now. */
  get room(): number {
    return Math.floor(this.window) - sequenceDistance(this.next, this.unacked);
  }

  /** Whether some of the request that is next has been sent. */
  get hasBegun(): boolean {
    if (this.position >= this.numbered) return false;
    return sequenceDistance(this.top, this.#first[this.#queue.entryAt(this.position)]) > 0;
  }

  packetsOf(entry: number): number {
    return this.#packets[entry];
  }

  /** Which packet of a request a number stands for. */
  indexOf(psn: number, entry: number): number {
    return sequenceDistance(psn, this.#first[entry]);
  }

  endOf(entry: number): number {
    return addSequence(this.#first[entry], this.#packets[entry]);
  }

  restart(psn: number): void {
    this.#nextFree = psn;
    this.numbered = 0;
    this.unacked = psn;
    this.next = psn;
    this.top = psn;
    this.position = 0;
    this.window = FIRST_WINDOW;
  }

  /** The next request gets its numbers. */
  number(entry: number, packets: number): void {
    this.#first[entry] = this.#nextFree;
    this.#packets[entry] = packets;
    this.#nextFree = addSequence(this.#nextFree, packets);
    this.numbered++;
  }

  /** So many numbers of the request that is next have gone. */
  sent(entry: number, packets: number): void {
    this.next = addSequence(this.next, packets);
    if (sequenceDistance(this.next, this.top) > 0) this.top = this.next;
    if (this.next === this.endOf(entry)) this.position++;
  }

  /** Nothing before `to` needs to be retransmitted. False when that was known. */
  advance(to: number): boolean {
    const progress = sequenceDistance(to, this.unacked);
    if (progress <= 0) return false;
    this.unacked = to;
    this.window = Math.min(MAX_WINDOW, this.window + progress / 2);
    // It may have been answered while it was about to be retransmitted.
    if (sequenceDistance(this.next, to) < 0) this.#goTo(to);
    return true;
  }

  /** The oldest request is about to leave the queue. */
  shift(): void {
    this.numbered--;
    if (this.position > 0) this.position--;
  }

  /** Something was lost. */
  halve(): void {
    this.window = Math.max(MIN_WINDOW, this.window / 2);
  }

  /** It is not known what was lost. */
  narrow(): void {
    this.window = MIN_WINDOW;
  }

  /** Retransmits from the oldest on. */
  rewind(): void {
    this.#goTo(this.unacked);
  }

  /**
   * Retransmits the last packet, if it is of a SEND or WRITE and nothing else is being
   * retransmitted.
   */
  repeatLast(): boolean {
    const last = addSequence(this.top, -1);
    const position = this.#positionOf(last);
    if (position === this.numbered || this.next !== this.top) return false;
    if (this.#queue.opcodeOf(this.#queue.entryAt(position)) >= sendOpcodes.read) return false;
    this.next = last;
    this.position = position;
    return true;
  }

  #goTo(psn: number): void {
    this.next = psn;
    this.position = this.#positionOf(psn);
  }

  #positionOf(psn: number): number {
    let position = 0;
    while (position < this.numbered && sequenceDistance(psn, this.endOf(this.#queue.entryAt(position))) >= 0) {
      position++;
    }
    return position;
  }
}
