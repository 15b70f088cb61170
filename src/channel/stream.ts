// A stream: one end of a carried connection. A program's socket on this side, records in the rings on the other.
//
// What was received before an end (stream-ends.ts) is still given to the program: the socket may outlive the name.

import { SystemError } from '../errors.ts';
import type { Draining, EventLoop, Resumable, Watched } from '../loop/index.ts';
import { type Address, AGAIN, pollEvents, type RangeList, type SharedMemory, type Socket } from '../native/index.ts';
import { ReceiveWindow, SendWindow } from './credits.ts';
import { HeldBytes } from './held-bytes.ts';
import type { LinkContext } from './link-context.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import { recordKinds } from './record-layout.ts';
import { recordFlags, StreamEnds, type StreamEndsEvents } from './stream-ends.ts';

const {
  in: IN,
  out: OUT,
  error: ERROR,
  hangup: HANGUP,
  peerClosed: PEER_CLOSED,
  urgent: URGENT,
  edge: EDGE,
} = pollEvents;
const EVENTS = IN | OUT | PEER_CLOSED | URGENT | EDGE;
const TO_READ = IN | ERROR | HANGUP | PEER_CLOSED | URGENT;
const TO_DRAIN = ERROR | HANGUP | PEER_CLOSED | URGENT;

/** Records that one stream may write before the others of the lane have their turn. */
const MAX_ROUNDS = 4;

/** The link, as its streams see it. */
export interface StreamOwner {
  readonly outgoing: OutgoingRing;
  readonly context: LinkContext;
  readonly maxPayloadBytes: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  /** The stream has pending control records. */
  enqueue(stream: Stream): void;
  /** The ring is full: `resume` when it is not. */
  waitForRoom(stream: Stream): void;
  /** A record was written. */
  wrote(sizeBytes: number): void;
  /** The stream id is free. */
  idFree(stream: Stream): void;
  /** The socket is closed. */
  socketClosed(stream: Stream): void;
}

export interface StreamInfo {
  readonly client: Address;
  readonly original: Address;
  /** This side's address towards the server; the client's own where a program of this host is the client. */
  readonly local: Address;
  readonly isOpener: boolean;
  readonly command: string;
  readonly pid: number;
}

export class Stream implements Watched, Resumable, Draining, StreamEndsEvents {
  readonly id: number;
  readonly info: StreamInfo;
  readonly sinceMs = Date.now();
  readonly #owner: StreamOwner;
  readonly #loop: EventLoop;
  readonly #socket: Socket;
  readonly #token: number;
  readonly #sending = new SendWindow();
  readonly #receiving: ReceiveWindow;
  readonly #held: HeldBytes;
  readonly ends = new StreamEnds(this);
  /** Of a call that did not succeed, here or there: its errno; 0 of others. */
  refusal = 0;
  #isConnecting: boolean;
  #isReadable = false;
  #isWritable = false;
  #mustDrain = false;
  /** The program was reset: it can be read to its end, and nobody takes what comes for it. */
  #hasError = false;
  /** Where connect or send told of the reset: the kernel tells once, and calls it an end from then on. */
  #endsInReset = false;
  #isQueued = false;
  #isWaitingForRoom = false;
  #isShutDown = false;
  bytesIn = 0;

  /** Takes over a socket that resets when it is closed; a closed one is for streams that are refused. `credit`: what the peer lets us send. `isConnecting`: the server has not answered yet. */
  constructor(id: number, owner: StreamOwner, socket: Socket, info: StreamInfo, credit: number, isConnecting: boolean) {
    const { context } = owner;
    this.id = id;
    this.info = info;
    this.#owner = owner;
    this.#loop = context.loop;
    this.#socket = socket;
    this.#isConnecting = isConnecting;
    this.#sending.extend(credit);
    this.#receiving = new ReceiveWindow(context.budget, owner.firstWindowBytes, owner.windowBytes);
    this.#held = new HeldBytes(context.pool);
    if (socket.isClosed) {
      this.#receiving.close();
      this.#token = -1;
      return;
    }
    this.#token = this.#loop.watch(socket.fd, EVENTS, this);
    if (info.isOpener) this.ends.request(recordFlags.open);
  }

  get heldBytes(): number {
    return this.#held.count;
  }

  get bytesOut(): number {
    return this.#sending.sentBytes;
  }

  get isClosed(): boolean {
    return this.#socket.isClosed;
  }

  get state(): string {
    if (this.#isConnecting || (this.ends.pending & recordFlags.open) !== 0) return 'opening';
    return this.ends.isOpen ? 'open' : 'closing';
  }

  // From the program's socket.

  onEvents(events: number): void {
    if (this.#isConnecting) {
      if ((events & (OUT | ERROR | HANGUP)) !== 0) this.#finishConnect();
      return;
    }
    if ((events & ERROR) !== 0 && this.ends.isShutHere) {
      // Nobody reads it any more, so nobody else would notice: what we sent has met a program that is gone.
      this.#failed();
      return;
    }
    if ((events & ERROR) !== 0) this.#hasError = true;
    if ((events & TO_READ) !== 0) this.#isReadable = true;
    if ((events & TO_DRAIN) !== 0) this.#mustDrain = true;
    if ((events & OUT) !== 0) this.#isWritable = true;
    if (this.#held.count > 0 || !this.ends.mayReceive) this.#deliverHeld();
    this.resume();
  }

  /** Receives from the program straight into the ring, as far as credit and room go. */
  resume(): void {
    this.#isQueued = false;
    this.#isWaitingForRoom = false;
    const { outgoing, maxPayloadBytes } = this.#owner;
    for (let round = 0; this.#isReadable && this.#mayWrite; round++) {
      const credit = this.#sending.availableBytes;
      if (credit <= 0) {
        // A credit resumes us. The end of the program's bytes needs none, and is found when there is some again; its
        // death must not wait for a receiver that stands still: what it had not sent is lost, as by plain TCP.
        if (this.#hasError) this.#failed();
        return;
      }
      if (round === MAX_ROUNDS) {
        this.#waitForTurn();
        return;
      }
      const room = outgoing.reserve(Math.min(credit, maxPayloadBytes));
      if (room <= 0) {
        this.#waitForRoom();
        return;
      }
      this.#receive(outgoing, room);
    }
  }

  get #mayWrite(): boolean {
    return this.ends.maySend && !this.#isConnecting && !this.#socket.isClosed;
  }

  #receive(outgoing: OutgoingRing, room: number): void {
    let size = 0;
    let count = 0;
    // Under load there may be more by now: it goes into the same record.
    for (let tries = 0; tries < 2 && size < room; tries++) {
      count = this.#receiveInto(outgoing.memory, outgoing.payloadOffset + size, room - size);
      if (count <= 0) break;
      size += count;
      if (size === room || (!this.#mustDrain && outgoing.usedSlots < outgoing.geometry.slots / 4)) break;
    }
    if (size > 0) {
      const credit = this.#receiving.isTold ? -1 : this.#receiving.tell();
      outgoing.commit(recordKinds.data, this.id, size, credit);
      this.#sending.send(size);
      this.#owner.wrote(size);
    }
    if (count === AGAIN) {
      this.#isReadable = false;
      this.#mustDrain = false;
    } else if (count === 0 && !this.#endsInReset) {
      this.#isReadable = false;
      this.#shutHere();
      // It had ended its half before.
      if (this.#hasError) this.#failed();
    } else if (count <= 0) {
      this.#isReadable = false;
      this.#failed();
    } else if (size < room && !this.#mustDrain) {
      this.#isReadable = false;
    }
  }

  /** Bytes, AGAIN, 0 at the end, or another negative number when the connection broke. */
  #receiveInto(memory: SharedMemory, offset: number, length: number): number {
    try {
      return this.#socket.receive(memory, offset, length);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      return BROKEN;
    }
  }

  #finishConnect(): void {
    try {
      this.#endsInReset = !this.#socket.finishConnect();
      this.#hasError = this.#endsInReset;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.refuse(-error.errno);
      return;
    }
    this.#isConnecting = false;
    // What else the event said was not looked at.
    this.#isReadable = true;
    this.#mustDrain = true;
    this.connected();
    this.#deliverHeld();
    this.resume();
  }

  /** The server has taken the call. */
  connected(): void {
    this.#isWritable = true;
    this.ends.request(recordFlags.opened);
  }

  // From the peer.

  onOpened(): void {
    // Until the server has answered, the program's bytes may go only as far as the first credit.
    this.resume();
  }

  onCredit(credit: number): void {
    this.#sending.extend(credit);
    if (this.#isReadable) this.resume();
  }

  /** False when the peer sent more than it may. */
  expects(sizeBytes: number): boolean {
    return this.ends.mayReceive && this.#receiving.receive(sizeBytes);
  }

  /** Whether records may be sent straight from the ring; otherwise they are held. */
  get takesAtOnce(): boolean {
    if (this.#isConnecting || this.#hasError || this.#socket.isClosed) return false;
    return this.#isWritable && this.#held.count === 0;
  }

  /** Sends the first rows of the list; what the socket does not take is held. */
  deliverRanges(list: RangeList, count: number, sizeBytes: number, hold: (stream: Stream, sent: number) => void): void {
    this.bytesIn += sizeBytes;
    // The credit that came with the last of them may have led to the end of the socket.
    if (this.#socket.isClosed) return;
    let sent = 0;
    try {
      sent = Math.max(0, this.#socket.sendRanges(list, count));
    } catch (error) {
      this.#broken(error);
      return;
    }
    if (sent > 0) this.#consumed(sent);
    if (sent === sizeBytes) return;
    this.#isWritable = false;
    hold(this, sent);
  }

  /** Copies bytes out of the ring; of a stream that nobody reads any more they are dropped. */
  hold(memory: SharedMemory, offset: number, sizeBytes: number): void {
    if (this.#socket.isClosed || this.#hasError || this.ends.isResetHere) return;
    this.#held.append(memory, offset, sizeBytes);
  }

  /** Counts what came in and is held rather than sent. */
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
    if (!this.#socket.isClosed) this.#owner.context.resetDrain.add(this);
  }

  /** A call that did not succeed. */
  refuse(errno: number): void {
    this.refusal = errno;
    this.ends.refuseHere();
    this.#closeSocket(true);
  }

  // From the ends, and from the writer that says what they want said.

  onPending(): void {
    this.#owner.enqueue(this);
  }

  onIdFree(): void {
    this.#owner.idFree(this);
  }

  written(flag: number): void {
    this.ends.written(flag);
    if (flag === recordFlags.open || flag === recordFlags.opened) this.resume();
  }

  /** The credit as it travels; it counts as told. */
  tellCredit(): number {
    return this.#receiving.tell();
  }

  get isCreditTold(): boolean {
    return this.#receiving.isTold;
  }

  /** The peer is gone, or this daemon goes: nobody will say anything more. */
  abandon(): void {
    const { isWhole } = this.ends;
    this.ends.abandon();
    if (isWhole && this.#held.count > 0) return;
    this.#closeSocket(!isWhole);
  }

  /** Resets both sides now. */
  abort(): void {
    this.#failed();
  }

  drain(): number {
    this.#deliverHeld();
    const waitingBytes = this.#socket.isClosed ? 0 : this.#held.count + this.#socket.unacknowledgedBytes;
    if (waitingBytes === 0) this.#closeSocket(true);
    return waitingBytes;
  }

  giveUp(): void {
    this.#closeSocket(true);
  }

  #deliverHeld(): void {
    if (this.#isConnecting || this.#socket.isClosed) return;
    while (this.#held.count > 0 && this.#isWritable) {
      let sent = 0;
      try {
        sent = this.#socket.send(this.#held.memory, this.#held.offset, this.#held.size);
      } catch (error) {
        this.#broken(error);
        return;
      }
      if (sent <= 0) {
        this.#isWritable = false;
        break;
      }
      const { size } = this.#held;
      this.#held.take(sent);
      this.#consumed(sent);
      if (sent < size) this.#isWritable = false;
    }
    if (this.#held.count > 0) return;
    if (this.ends.isResetThere) this.#die();
    else if (this.ends.isShutThere) this.#shutDown();
  }

  /** The socket was given all that the peer sent before its reset: once it is there, which a reset could overtake, the program is reset. */
  #die(): void {
    if (this.#isShutDown || this.#socket.unacknowledgedBytes === 0) this.#closeSocket(true);
    else this.#owner.context.resetDrain.add(this);
  }

  #shutDown(): void {
    const isFirst = !this.#isShutDown;
    this.#isShutDown = true;
    if (this.ends.isShutHere) {
      // Closing ends it as well.
      this.#closeSocket(false);
      return;
    }
    if (!isFirst) return;
    try {
      this.#socket.shutdownSend();
    } catch (error) {
      this.#broken(error);
    }
  }

  #consumed(sizeBytes: number): void {
    this.#receiving.consume(sizeBytes);
    if (this.#receiving.isDue && this.ends.mayReceive && !this.ends.isResetHere) this.ends.request(recordFlags.credit);
  }

  #shutHere(): void {
    this.ends.shutHere();
    if (this.#isShutDown) this.#closeSocket(false);
  }

  /** The program cannot be written to. What it sent before may still wait to be read. */
  #broken(error: unknown): void {
    if (!(error instanceof SystemError)) throw error;
    this.#hasError = true;
    // EPIPE: the reset came after an end, which is still there to be read.
    this.#endsInReset ||= error.code !== 'EPIPE';
    this.#held.clear();
    if (!this.ends.maySend) {
      this.#failed();
      return;
    }
    this.#isReadable = true;
    this.#mustDrain = true;
    this.resume();
  }

  /** The program's connection broke, or is to be broken. */
  #failed(): void {
    this.ends.resetHere();
    this.#closeSocket(true);
  }

  #waitForTurn(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#loop.again(this);
  }

  #waitForRoom(): void {
    if (this.#isWaitingForRoom) return;
    this.#isWaitingForRoom = true;
    this.#owner.waitForRoom(this);
  }

  #closeSocket(isAbrupt: boolean): void {
    if (this.#socket.isClosed) return;
    this.#held.clear();
    this.#receiving.close();
    // First: as soon as the socket is closed, its port may be somebody else's.
    this.#owner.socketClosed(this);
    this.#loop.forget(this.#token);
    this.#socket.resetOnClose(isAbrupt);
    this.#socket.close();
  }
}

/** Not AGAIN, and no count. */
const BROKEN = -2;
