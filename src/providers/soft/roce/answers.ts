// The answers that a responder has to send, in order: refusals, READ and atomic responses, and one
// acknowledgement for all requests that were carried out.

import { access } from '../../../verbs/index.ts';
import { type AtomicResult, type Reached, regionOf } from '../remote-access.ts';
import { addSequence } from '../sequence.ts';
import type { Destination } from './address-book.ts';
import { operations } from './opcode.ts';
import { Packet, syndromes } from './packet.ts';
import { PiecesCursor } from './pieces-cursor.ts';
import type { Transmitter } from './transmitter.ts';

export interface AnswersOwner extends Reached {
  readonly mtu: number;
  readonly destination: Destination;
  readonly destQp: number;
}

type Answer =
  | { readonly kind: 'nak'; readonly psn: number; readonly syndrome: number }
  | { readonly kind: 'atomic'; readonly psn: number; readonly low: number; readonly high: number }
  | ReadAnswer;

interface ReadAnswer {
  readonly kind: 'read';
  readonly psn: number;
  readonly rkey: number;
  readonly address: number;
  readonly bytes: number;
  readonly packets: number;
  /** Packets that have gone. */
  sent: number;
  /** It was given before, and does not count among the reads under way. */
  readonly isRepeated: boolean;
}

/** More than the reads and atomics that may be under way (128), and a refusal. */
const MAX_ANSWERS = 512;

export class Answers {
  readonly #owner: AnswersOwner;
  readonly #packet = new Packet();
  readonly #outgoing = new PiecesCursor();
  readonly #answers: Answer[] = [];
  /** One past the last number that was carried out. */
  #expected = 0;
  /** Requests carried out, modulo 2^24: the MSN of acknowledgements. */
  #msn = 0;
  #reads = 0;
  #isAckDue = false;

  constructor(owner: AnswersOwner) {
    this.#owner = owner;
  }

  get expected(): number {
    return this.#expected;
  }

  get isFull(): boolean {
    return this.#answers.length >= MAX_ANSWERS;
  }

  /** READs under way. */
  get reads(): number {
    return this.#reads;
  }

  /** Whether only an acknowledgement is due, which may wait a moment to go out with a reply. */
  get owesOnlyAck(): boolean {
    return this.#isAckDue && this.#answers.length === 0;
  }

  start(psn: number): void {
    this.#expected = psn;
    this.#msn = 0;
  }

  clear(): void {
    this.#answers.length = 0;
    this.#reads = 0;
    this.#isAckDue = false;
  }

  /**
   * Packets with so many sequence numbers were carried out; `isRequestDone` when they end a
   * request.
   */
  advance(packets: number, isRequestDone: boolean): void {
    this.#expected = addSequence(this.#expected, packets);
    if (isRequestDone) this.#msn = addSequence(this.#msn, 1);
  }

  acknowledge(): void {
    this.#isAckDue = true;
  }

  nak(syndrome: number, psn: number): void {
    const last = this.#answers.at(-1);
    // One is enough, however often a peer that does not read its answers asks.
    if (last?.kind === 'nak' && last.psn === psn && last.syndrome === syndrome) return;
    if (this.#answers.length <= MAX_ANSWERS) this.#answers.push({ kind: 'nak', psn, syndrome });
  }

  atomic(psn: number, { low, high }: AtomicResult): void {
    this.#answers.push({ kind: 'atomic', psn, low, high });
  }

  /** Returns how many packets the answer has. */
  read(psn: number, rkey: number, address: number, bytes: number, isRepeated: boolean): number {
    const packets = Math.max(1, Math.ceil(bytes / this.#owner.mtu));
    // An answer that is still being sent is not queued twice.
    if (isRepeated && this.#answers.some((one) => one.kind === 'read' && one.psn === psn)) return packets;
    this.#answers.push({ kind: 'read', psn, rkey, address, bytes, packets, sent: 0, isRepeated });
    if (!isRepeated) this.#reads++;
    return packets;
  }

  transmit(transmitter: Transmitter): void {
    for (;;) {
      const answer = this.#answers[0];
      if (answer === undefined) break;
      const isDone = answer.kind === 'read' ? this.#sendRead(answer, transmitter) : this.#send(answer, transmitter);
      if (!isDone) return;
      this.#answers.shift();
    }
    if (!this.#isAckDue || !transmitter.hasRoom(0, 0)) return;
    this.#isAckDue = false;
    const packet = this.#begin(operations.acknowledge, addSequence(this.#expected, -1), syndromes.ack);
    transmitter.add(packet, this.#owner.destination, 0, undefined, 0);
  }

  #send(answer: Exclude<Answer, ReadAnswer>, transmitter: Transmitter): boolean {
    if (!transmitter.hasRoom(0, 0)) return false;
    const isNak = answer.kind === 'nak';
    const operation = isNak ? operations.acknowledge : operations.atomicAcknowledge;
    const packet = this.#begin(operation, answer.psn, isNak ? answer.syndrome : syndromes.ack);
    if (!isNak) {
      packet.originalLow = answer.low;
      packet.originalHigh = answer.high;
    }
    this.#coverAck(isNak ? addSequence(answer.psn, -1) : answer.psn);
    transmitter.add(packet, this.#owner.destination, 0, undefined, 0);
    return true;
  }

  /**
   * Any answer acknowledges all requests before it, so they need no acknowledgement of their own.
   */
  #coverAck(psn: number): void {
    if (psn === addSequence(this.#expected, -1)) this.#isAckDue = false;
  }

  #sendRead(answer: ReadAnswer, transmitter: Transmitter): boolean {
    const { mtu, destination } = this.#owner;
    if (answer.bytes > 0 && !this.#resolve(answer)) return this.#endRead(answer);
    for (; answer.sent < answer.packets; answer.sent++) {
      if (!transmitter.hasRoom(mtu, 1)) return false;
      const from = answer.sent * mtu;
      const isFirst = answer.sent === 0;
      const isLast = answer.sent === answer.packets - 1;
      const psn = addSequence(answer.psn, answer.sent);
      const packet = this.#begin(readResponse(isFirst, isLast), psn, syndromes.ack);
      transmitter.add(packet, destination, Math.min(mtu, answer.bytes - from), this.#outgoing, from);
    }
    this.#coverAck(addSequence(answer.psn, answer.packets - 1));
    return this.#endRead(answer);
  }

  #endRead({ isRepeated }: ReadAnswer): true {
    if (!isRepeated) this.#reads--;
    return true;
  }

  /**
   * The key may have been revoked since the request came; then the peer is refused when it
   * retransmits.
   */
  #resolve({ rkey, address, bytes }: ReadAnswer): boolean {
    const region = regionOf(this.#owner, rkey, access.remoteRead);
    if (region === undefined) return false;
    this.#outgoing.clear();
    this.#outgoing.pieces.add(region.memory, region.locate(address, bytes), bytes);
    return true;
  }

  #begin(opcode: number, psn: number, syndrome: number): Packet {
    const packet = this.#packet;
    packet.opcode = opcode;
    packet.destQp = this.#owner.destQp;
    packet.psn = psn;
    packet.syndrome = syndrome;
    packet.msn = this.#msn;
    return packet;
  }
}

function readResponse(isFirst: boolean, isLast: boolean): number {
  if (isFirst) return isLast ? operations.readResponseOnly : operations.readResponseFirst;
  return isLast ? operations.readResponseLast : operations.readResponseMiddle;
}
