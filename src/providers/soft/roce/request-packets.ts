// The packets of requests: a SEND or WRITE cut into the MTU's size, and what asks for a READ or an
// atomic.

import { read64, sendFlags, sendOpcodes, sendRow } from '../../../verbs/index.ts';
import type { RegionTable } from '../region.ts';
import type { SendCompletions } from '../send-completions.ts';
import type { SendQueue } from '../send-queue.ts';
import { addSequence } from '../sequence.ts';
import type { Destination } from './address-book.ts';
import type { Flight } from './flight.ts';
import { operations } from './opcode.ts';
import { Packet } from './packet.ts';
import type { ReadsUnderWay } from './reads-under-way.ts';
import { RequestMemory } from './request-memory.ts';
import type { Transmitter } from './transmitter.ts';

const TWO_32 = 4_294_967_296;
/** The peer is asked for an acknowledgement at least every so many packets. */
const ACK_EVERY = 16;

export interface RequestPacketsOwner {
  readonly regions: RegionTable;
  readonly mtu: number;
  readonly destination: Destination;
  readonly destQp: number;
}

export class RequestPackets {
  /** What is being sent. */
  readonly memory: RequestMemory;
  readonly #owner: RequestPacketsOwner;
  readonly #queue: SendQueue;
  readonly #completions: SendCompletions;
  readonly #flight: Flight;
  readonly #reads: ReadsUnderWay;
  readonly #packet = new Packet();
  /** Packets since the last that asked for an acknowledgement, and whether the next one shall. */
  #unasked = 0;
  #mustAsk = false;

  constructor(
    owner: RequestPacketsOwner,
    queue: SendQueue,
    outcomes: SendCompletions,
    flight: Flight,
    reads: ReadsUnderWay,
  ) {
    this.#owner = owner;
    this.#queue = queue;
    this.#completions = outcomes;
    this.#flight = flight;
    this.#reads = reads;
    this.memory = new RequestMemory(queue, owner.regions, 0);
  }

  /** The next packet shall ask for an acknowledgement. */
  askNext(): void {
    this.#mustAsk = true;
  }

  clear(): void {
    this.memory.clear();
    this.#asked();
  }

  /** The next packet of a SEND or WRITE, of which the memory is there. */
  send(entry: number, row: number, room: number, transmitter: Transmitter): void {
    const { mtu, destination } = this.#owner;
    const { words } = this.#queue;
    const index = this.#flight.indexOf(this.#flight.next, entry);
    const isFirst = index === 0;
    const isLast = index === this.#flight.packetsOf(entry) - 1;
    const opcode = words[row + sendRow.opcode];
    const isWrite = opcode >= sendOpcodes.write;
    const hasImm = isLast && (opcode === sendOpcodes.sendWithImm || opcode === sendOpcodes.writeWithImm);
    const from = index * mtu;
    const packet = this.#begin(operationOf(isWrite, isFirst, isLast, hasImm));
    const isSolicited = (words[row + sendRow.flags] & sendFlags.solicited) !== 0;
    packet.isSolicited = isSolicited && isLast && (hasImm || !isWrite);
    packet.isAckRequested = room === 1 || this.#wantsAck(row, isLast);
    if (hasImm) packet.imm = words[row + sendRow.imm];
    if (isWrite && isFirst) {
      this.#aim(row, 0);
      packet.dmaLength = this.#queue.bytesOf(entry);
    }
    const payloadBytes = Math.min(mtu, this.#queue.bytesOf(entry) - from);
    transmitter.add(packet, destination, payloadBytes, this.memory.cursor, from);
  }

  /**
   * A signalled request needs an acknowledgement; others are acknowledged together, now and then.
   */
  #wantsAck(row: number, isLast: boolean): boolean {
    const isWanted =
      this.#mustAsk ||
      ++this.#unasked >= ACK_EVERY ||
      (isLast && (this.#completions.isSignaled(row) || this.#queue.isHalfFull));
    if (isWanted) this.#asked();
    return isWanted;
  }

  #asked(): void {
    this.#unasked = 0;
    this.#mustAsk = false;
  }

  /**
   * The request of a READ or an atomic. A long READ is asked for in parts, so that the answer fits
   * in the window. Returns how many numbers the answer has; 0 when it should wait.
   */
  ask(entry: number, row: number, room: number, transmitter: Transmitter): number {
    const isRead = this.#queue.words[row + sendRow.opcode] === sendOpcodes.read;
    const answers = isRead ? this.#askRead(entry, row, room) : this.#askAtomic(row);
    if (answers === 0) return 0;
    this.#packet.isAckRequested = true;
    this.#asked();
    transmitter.add(this.#packet, this.#owner.destination, 0, undefined, 0);
    this.#reads.asked(this.#flight.next, answers);
    return answers;
  }

  #askRead(entry: number, row: number, room: number): number {
    const { mtu } = this.#owner;
    const { next, window } = this.#flight;
    const index = this.#flight.indexOf(next, entry);
    const left = Math.min(this.#flight.packetsOf(entry) - index, this.#reads.partLeft(next));
    // Too small a part does not pay: it waits for more room.
    if (room < left && room < window / 4) return 0;
    const answers = Math.min(left, room);
    this.#reads.endPart(addSequence(next, answers));
    const packet = this.#begin(operations.readRequest);
    this.#aim(row, index * mtu);
    packet.dmaLength = Math.min(this.#queue.bytesOf(entry) - index * mtu, answers * mtu);
    return answers;
  }

  #askAtomic(row: number): number {
    const { words } = this.#queue;
    const isAdd = words[row + sendRow.opcode] === sendOpcodes.fetchAdd;
    const packet = this.#begin(isAdd ? operations.fetchAdd : operations.compareSwap);
    this.#aim(row, 0);
    const swap = row + (isAdd ? sendRow.compareAdd : sendRow.swap);
    packet.swapLow = words[swap];
    packet.swapHigh = words[swap + 1];
    packet.compareLow = isAdd ? 0 : words[row + sendRow.compareAdd];
    packet.compareHigh = isAdd ? 0 : words[row + sendRow.compareAdd + 1];
    return 1;
  }

  #begin(opcode: number): Packet {
    const packet = this.#packet;
    packet.opcode = opcode;
    packet.isSolicited = false;
    packet.destQp = this.#owner.destQp;
    packet.psn = this.#flight.next;
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
}

function operationOf(isWrite: boolean, isFirst: boolean, isLast: boolean, hasImm: boolean): number {
  const base = isWrite ? operations.writeFirst : operations.sendFirst;
  const imm = hasImm ? 1 : 0;
  if (isFirst && isLast) return base + operations.sendOnly + imm;
  if (isFirst) return base;
  return isLast ? base + operations.sendLast + imm : base + operations.sendMiddle;
}
