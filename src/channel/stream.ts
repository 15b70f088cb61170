// A stream: one end of a carried connection. A program's socket on one side, records in the rings
// on the other.
//
// This file does what the two state machines decide: leg-state.ts for the socket, stream-ends.ts
// for the records. Bytes that came before an end are still delivered to the program, so the socket
// may outlive the stream id.

import { SystemError } from '../errors.ts';
import type { Draining, Resumable, Watched } from '../loop/index.ts';
import { type Address, AGAIN, pollEvents, type RangeList, type SharedMemory, type Socket } from '../native/index.ts';
import type { RecordWriting } from './control-record-writer.ts';
import { ReceiveWindow, SendWindow } from './credits.ts';
import { HeldBytes } from './held-bytes.ts';
import { LegState, legActions, readResults } from './leg-state.ts';
import type { LinkContext } from './link-context.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { recordKinds } from './record-layout.ts';
import { recordFlags, StreamEnds, type StreamEndsEvents } from './stream-ends.ts';
import { streamPayloadBytes, writeStreamRecord } from './stream-records.ts';

const EVENTS = pollEvents.in | pollEvents.out | pollEvents.peerClosed | pollEvents.urgent | pollEvents.edge;
/** Records that one stream may write before other streams of the lane have their turn. */
const MAX_ROUNDS = 4;
/** A stream that has given credit back waits so many beats for more before its reset is told. */
const MOST_IDLE_BEATS = 10;
/** A receive that failed; neither AGAIN nor a count. */
const BROKEN = -2;

/** The link, as its streams see it. */
export interface StreamOwner {
  readonly outgoing: OutgoingRing;
  readonly context: LinkContext;
  readonly maxPayloadBytes: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  /** The stream has pending control records. */
  enqueue(stream: RecordWriting): void;
  /** The ring is full: the owner calls `resume` when it is not. */
  waitForRoom(stream: RecordWriting): void;
  /** A record of data was written. */
  wrote(sizeBytes: number): void;
  /** The stream id is free. */
  idFree(stream: Stream): void;
  /** The socket is closed. */
  socketClosed(stream: Stream): void;
}

export interface StreamInfo {
  readonly client: Address;
  /** The destination as the client sees it. */
  readonly original: Address;
  readonly isOpener: boolean;
  readonly command: string;
  readonly pid: number;
  /** The cookie of the network namespace that the program of this host is in. */
  readonly netns: number;
}

export class Stream implements RecordWriting, Watched, Resumable, Draining, StreamEndsEvents {
  readonly isDirect = false;
  readonly id: number;
  readonly info: StreamInfo;
  readonly sinceMs = Date.now();
  readonly #owner: StreamOwner;
  readonly #socket: Socket;
  readonly #token: number;
  readonly #sending = new SendWindow();
  readonly #receiving: ReceiveWindow;
  readonly #held: HeldBytes;
  readonly ends = new StreamEnds(this);
  readonly #leg: LegState;
  /** The errno with which the server was not reached, here or at the peer; 0 when it was. */
  refusal = 0;
  bytesIn = 0;
  /** Credit that was given back, of which the peer is to be told. */
  #returnedBytes = 0;
  /** What was sent at the last beat. */
  #sentAtBeat = 0;
  /** In a row, in which nothing was sent. */
  #idleBeats = 0;

  /**
   * Takes over a socket that resets when it is closed; a closed one is for streams that are
   * refused. `credit` is what the peer lets us send. `isConnecting`: the server has not accepted
   * yet.
   */
  constructor(id: number, owner: StreamOwner, socket: Socket, info: StreamInfo, credit: number, isConnecting: boolean) {
    const { context } = owner;
    this.id = id;
    this.info = info;
    this.#owner = owner;
    this.#socket = socket;
    this.#leg = new LegState(this.ends, isConnecting);
    this.#sending.extend(credit);
    this.#receiving = new ReceiveWindow(context.budget, owner.firstWindowBytes, owner.windowBytes);
    this.#held = new HeldBytes(context.pool);
    if (socket.isClosed) {
      this.#leg.closed();
      this.#receiving.close();
      this.#token = -1;
      return;
    }
    this.#token = context.loop.watch(socket.fd, EVENTS, this);
    if (info.isOpener) this.ends.request(recordFlags.open);
  }

  get heldBytes(): number {
    return this.#held.count;
  }

  get bytesOut(): number {
    return this.#sending.sentBytes;
  }

  get isClosed(): boolean {
    return this.#leg.isClosed;
  }

  get state(): string {
    if (this.#leg.isConnecting || (this.ends.pending & recordFlags.open) !== 0) return 'opening';
    return this.ends.isOpen ? 'open' : 'closing';
  }

  /**
   * About once a second: where the peer is short of memory, a stream that has sent nothing since
   * the last time gives credit back.
   */
  beat(isPeerShort: boolean): void {
    const sent = this.#sending.sentBytes;
    const isIdle = sent === this.#sentAtBeat;
    this.#sentAtBeat = sent;
    this.#idleBeats = isIdle ? this.#idleBeats + 1 : 0;
    // Nobody grants more: the program's end is told after all.
    if (this.#idleBeats === MOST_IDLE_BEATS && this.#sending.availableBytes <= 0) this.#do(this.#leg.creditGone());
    if (!isIdle || !isPeerShort || !this.ends.maySend) return;
    const bytes = this.#sending.giveBack();
    if (bytes === 0) return;
    this.#returnedBytes += bytes;
    this.ends.request(recordFlags.returned);
  }

  // From the program to the ring

  onEvents(events: number): void {
    this.#do(this.#leg.onEvents(events));
  }

  /** Receives from the program straight into the ring, as far as credit and room go. */
  resume(): void {
    const leg = this.#leg;
    leg.resumed();
    const { outgoing, maxPayloadBytes } = this.#owner;
    for (let round = 0; leg.mayRead; round++) {
      const credit = this.#sending.availableBytes;
      if (credit <= 0) {
        // A stream that gave its credit back gets some when what it sent is read: what its program
        // has sent before a reset is not lost for that.
        if (!this.#sending.hasReturned) this.#do(leg.creditGone());
        return;
      }
      if (round === MAX_ROUNDS) {
        if (leg.waitForTurn()) this.#owner.context.loop.again(this);
        return;
      }
      const room = outgoing.reserve(Math.min(credit, maxPayloadBytes));
      if (room <= 0) {
        if (leg.waitForRoom()) this.#owner.waitForRoom(this);
        return;
      }
      this.#do(leg.received(this.#receive(outgoing, room)));
    }
  }

  /** Makes one record of what the program has sent. Returns one of `readResults`. */
  #receive(outgoing: OutgoingRing, room: number): number {
    let size = 0;
    let count = 0;
    // Under load there may be more by now, which goes into the same record.
    for (let tries = 0; tries < 2 && size < room; tries++) {
      count = this.#receiveInto(outgoing.memory, outgoing.payloadOffset + size, room - size);
      if (count <= 0) break;
      size += count;
      if (size === room || (!this.#leg.mustDrain && outgoing.usedSlots < outgoing.geometry.slots / 4)) break;
    }
    if (size > 0) {
      const credit = this.#receiving.isTold ? -1 : this.#receiving.tell();
      outgoing.commit(recordKinds.data, this.id, size, credit);
      this.#sending.send(size);
      this.#owner.wrote(size);
    }
    if (count > 0) return size < room ? readResults.short : readResults.full;
    if (count === 0) return readResults.end;
    return count === AGAIN ? readResults.again : readResults.broken;
  }

  /** Bytes, AGAIN, 0 at the end, or BROKEN. */
  #receiveInto(memory: SharedMemory, offset: number, length: number): number {
    try {
      return this.#socket.receive(memory, offset, length);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return BROKEN;
    }
  }

  #finishConnect(): void {
    let isReset = false;
    try {
      isReset = !this.#socket.finishConnect();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.refuse(-error.errno);
      return;
    }
    this.#do(this.#leg.connected(isReset));
  }

  // From the ring to the program

  /** The server has accepted at once. */
  accepted(): void {
    this.#leg.accepted();
  }

  onOpened(): void {
    // Until the server has accepted, the client's bytes go only as far as the first credit.
    this.resume();
  }

  onCredit(credit: number): void {
    this.#sending.extend(credit);
    if (this.#leg.mayRead) this.resume();
  }

  /** The peer gives credit back. False when it has not so much. */
  onReturned(sizeBytes: number): boolean {
    if (this.#leg.isClosed) return true;
    if (!this.#receiving.giveBack(sizeBytes)) return false;
    this.#offerCredit();
    return true;
  }

  /** False when the peer sent more than it may. */
  expects(sizeBytes: number): boolean {
    return this.ends.mayReceive && this.#receiving.receive(sizeBytes);
  }

  /** Whether records may be sent straight from the ring; otherwise they are held. */
  get takesAtOnce(): boolean {
    return this.#leg.maySendAtOnce && this.#held.count === 0;
  }

  /** Sends the first rows of the list; `hold` is called with what the socket did not take. */
  deliverRanges(list: RangeList, count: number, sizeBytes: number, hold: (stream: Stream, sent: number) => void): void {
    this.bytesIn += sizeBytes;
    // The credit that came with the last of them may have led to the end of the socket.
    if (this.#leg.isClosed) return;
    let sent = 0;
    try {
      sent = Math.max(0, this.#socket.sendRanges(list, count));
    } catch (error) {
      this.#sendFailed(error);
      return;
    }
    if (sent > 0) this.#consumed(sent);
    if (sent === sizeBytes) return;
    this.#leg.sendBlocked();
    hold(this, sent);
  }

  /** Copies bytes out of the ring, unless nobody will take them. */
  hold(memory: SharedMemory, offset: number, sizeBytes: number): void {
    if (this.#leg.mayHold) this.#held.append(memory, offset, sizeBytes);
  }

  /** Counts data that came in and is held rather than sent. */
  countIn(sizeBytes: number): void {
    this.bytesIn += sizeBytes;
  }

  onShut(): void {
    this.ends.shutThere();
    this.#deliverHeld();
  }

  onReset(): void {
    this.ends.resetThere();
    this.#deliverHeld();
    // The program may never read what is held for it.
    if (!this.#leg.isClosed) this.#owner.context.resetDrain.add(this);
  }

  /** The server could not be reached. */
  refuse(errno: number): void {
    this.refusal = errno;
    this.#do(this.#leg.refused());
  }

  /** The peer is gone, or this daemon stops: nobody reads records of the stream any more. */
  abandon(): void {
    this.#do(this.#leg.abandoned(this.#held.count > 0));
  }

  // StreamEndsEvents, and the writer of control records

  onPending(): void {
    this.#owner.enqueue(this);
  }

  onIdFree(): void {
    this.#owner.idFree(this);
  }

  payloadBytesOf(flag: number): number {
    return streamPayloadBytes(flag);
  }

  write(ring: OutgoingRing, flag: number): void {
    writeStreamRecord(ring, this, flag);
  }

  written(flag: number): void {
    this.ends.written(flag);
    if (flag === recordFlags.open || flag === recordFlags.opened) this.resume();
  }

  /** The credit as it travels; it counts as told. */
  tellCredit(): number {
    return this.#receiving.tell();
  }

  /** Credit that was given back; it counts as told. */
  tellReturned(): number {
    const bytes = this.#returnedBytes;
    this.#returnedBytes = 0;
    return bytes;
  }

  get isCreditTold(): boolean {
    return this.#receiving.isTold;
  }

  // Draining

  drain(): number {
    this.#deliverHeld();
    const waitingBytes = this.#leg.isClosed ? 0 : this.#held.count + this.#socket.unacknowledgedBytes;
    if (waitingBytes === 0) this.#close(true);
    return waitingBytes;
  }

  giveUp(): void {
    this.#close(true);
  }

  // The socket

  #do(action: number): void {
    switch (action) {
      case legActions.none:
        break;
      case legActions.finishConnect:
        this.#finishConnect();
        break;
      case legActions.transfer:
        this.#deliverHeld();
        this.resume();
        break;
      case legActions.read:
        this.resume();
        break;
      case legActions.shutdownSend:
        this.#shutdownSend();
        break;
      case legActions.drain:
        if (this.#socket.unacknowledgedBytes === 0) this.#close(true);
        else this.#owner.context.resetDrain.add(this);
        break;
      default:
        this.#close(action === legActions.reset);
    }
  }

  #deliverHeld(): void {
    const held = this.#held;
    while (held.count > 0 && this.#leg.maySend) {
      let sent = 0;
      try {
        sent = Math.max(0, this.#socket.send(held.memory, held.offset, held.size));
      } catch (error) {
        this.#sendFailed(error);
        return;
      }
      if (sent < held.size) this.#leg.sendBlocked();
      if (sent === 0) break;
      held.take(sent);
      this.#consumed(sent);
    }
    if (held.count === 0) this.#do(this.#leg.delivered());
  }

  #shutdownSend(): void {
    try {
      this.#socket.shutdownSend();
    } catch (error) {
      this.#sendFailed(error);
    }
  }

  #consumed(sizeBytes: number): void {
    this.#receiving.consume(sizeBytes);
    this.#offerCredit();
  }

  #offerCredit(): void {
    if (this.#receiving.isDue && this.ends.mayReceive && !this.ends.isResetHere) this.ends.request(recordFlags.credit);
  }

  #sendFailed(error: unknown): void {
    if (!(error instanceof SystemError)) throw error;
    this.#held.clear();
    this.#do(this.#leg.sendFailed(error.code === 'EPIPE'));
  }

  #close(isReset: boolean): void {
    if (this.#leg.isClosed) return;
    this.#leg.closed();
    this.#held.clear();
    this.#receiving.close();
    // Before the socket is closed: from then on its port may be somebody else's.
    this.#owner.socketClosed(this);
    this.#owner.context.loop.forget(this.#token);
    this.#socket.resetOnClose(isReset);
    this.#socket.close();
  }
}
