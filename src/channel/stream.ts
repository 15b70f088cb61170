// A stream: one end of a carried connection. A program's socket on this side, records in the rings on the other.
//
// Each side ends its half with exactly one `shut`, or both with a `reset` (`refused` is a reset that says why). The name is
// free for another stream when this side has sent such an end and has got one. What was received before is still given to
// the program: the socket may outlive the name.

import { SystemError } from '../errors.ts';
import type { Lane, Resumable, Watched } from '../lane/index.ts';
import { type Address, AGAIN, pollEvents, type RangeList, type SharedMemory, type Socket } from '../native/index.ts';
import { ReceiveWindow, SendWindow } from './credits.ts';
import { HeldBytes } from './held-bytes.ts';
import { recordKinds } from './layout.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import type { LaneParts } from './parts.ts';

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
/** Looks without progress until what a reset stream still has to deliver is dropped. */
const PATIENCE_LOOKS = 20;

/** What a stream still has to tell the peer; flags, told in this order. */
export const says = { open: 1, opened: 2, refused: 4, credit: 8, shut: 16, reset: 32 } as const;

/** The link, as its streams see it. */
export interface StreamOwner {
  readonly outgoing: OutgoingRing;
  readonly parts: LaneParts;
  readonly maxPayloadBytes: number;
  readonly firstWindowBytes: number;
  readonly windowBytes: number;
  /** The stream has something to say. */
  speak(stream: Stream): void;
  /** The ring is full: `resume` when it is not. */
  waitForRoom(stream: Stream): void;
  /** A record was written. */
  wrote(sizeBytes: number): void;
  /** The name is free. */
  nameFree(stream: Stream): void;
  /** The socket is closed. */
  socketClosed(stream: Stream): void;
}

export interface StreamAbout {
  readonly client: Address;
  readonly original: Address;
  /** This side's address towards the server; the client's own where a program of this host is the client. */
  readonly local: Address;
  readonly isOpener: boolean;
  readonly command: string;
  readonly pid: number;
}

export class Stream implements Watched, Resumable {
  readonly id: number;
  readonly about: StreamAbout;
  readonly sinceMs = Date.now();
  readonly #owner: StreamOwner;
  readonly #lane: Lane;
  readonly #socket: Socket;
  readonly #token: number;
  readonly #sending = new SendWindow();
  readonly #receiving: ReceiveWindow;
  readonly #held: HeldBytes;
  /** What is to be said: flags of `says`. */
  saying = 0;
  /** Of a call that did not succeed, here or there: its errno; 0 of others. */
  refusal = 0;
  #isConnecting: boolean;
  #isReadable = false;
  #isWritable = false;
  #mustDrain = false;
  /** The program was reset. */
  #hasError = false;
  /** It was before we knew that it had taken the call: the kernel told once, and calls it an end from then on. */
  #endsInReset = false;
  #isQueued = false;
  #isWaitingForRoom = false;
  /** Said, or about to be said in order: nothing comes after it. */
  #isShutHere = false;
  #isResetHere = false;
  #isShutThere = false;
  #isResetThere = false;
  #isNameFree = false;
  #isShutDown = false;
  #idleLooks = 0;
  #lastWaiting = -1;
  bytesIn = 0;

  /** Takes over a socket that resets when it is closed; a closed one is for streams that are refused. `credit`: what the peer lets us send. `isConnecting`: the server has not answered yet. */
  constructor(
    id: number,
    owner: StreamOwner,
    socket: Socket,
    about: StreamAbout,
    credit: number,
    isConnecting: boolean,
  ) {
    const { parts } = owner;
    this.id = id;
    this.about = about;
    this.#owner = owner;
    this.#lane = parts.lane;
    this.#socket = socket;
    this.#isConnecting = isConnecting;
    this.#sending.extend(credit);
    this.#receiving = new ReceiveWindow(parts.budget, owner.firstWindowBytes, owner.windowBytes);
    this.#held = new HeldBytes(parts.pool);
    if (socket.isClosed) {
      this.#receiving.close();
      this.#token = -1;
      return;
    }
    this.#token = this.#lane.watch(socket.fd, EVENTS, this);
    if (about.isOpener) this.#say(says.open);
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
    if (this.#isConnecting || (this.saying & says.open) !== 0) return 'opening';
    return this.#isShutHere || this.#isShutThere || this.#isResetHere || this.#isResetThere ? 'closing' : 'open';
  }

  // From the program's socket.

  onEvents(events: number): void {
    if (this.#isConnecting) {
      if ((events & (OUT | ERROR | HANGUP)) !== 0) this.#finishConnect();
      return;
    }
    if ((events & ERROR) !== 0 && this.#isShutHere) {
      // Nobody reads it any more, so nobody else would notice: what we sent has met a program that is gone.
      this.#failed();
      return;
    }
    if ((events & ERROR) !== 0) this.#hasError = true;
    if ((events & TO_READ) !== 0) this.#isReadable = true;
    if ((events & TO_DRAIN) !== 0) this.#mustDrain = true;
    if ((events & OUT) !== 0) this.#isWritable = true;
    if (this.#held.count > 0 || this.#isShutThere || this.#isResetThere) this.#deliverHeld();
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
    const isEnded = this.#isShutHere || this.#isResetHere || this.#isResetThere;
    return !isEnded && (this.saying & says.open) === 0 && !this.#isConnecting && !this.#socket.isClosed;
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
      this.#lane.turnsTo(this);
    }
    if (count === AGAIN) {
      this.#isReadable = false;
      this.#mustDrain = false;
    } else if (count === 0 && !this.#endsInReset) {
      this.#isReadable = false;
      this.#shutHere();
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
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.refuse(-error.errno);
      return;
    }
    this.#isConnecting = false;
    // What else the event said was not looked at.
    this.#isReadable = true;
    this.#mustDrain = true;
    this.answered();
    this.#deliverHeld();
    this.resume();
  }

  /** The server has taken the call. */
  answered(): void {
    this.#isWritable = true;
    this.#say(says.opened);
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
    return !this.#isShutThere && !this.#isResetThere && this.#receiving.receive(sizeBytes);
  }

  /** Whether records may be sent straight from the ring; otherwise they are held. */
  get takesAtOnce(): boolean {
    return this.#isWritable && this.#held.count === 0 && !this.#isConnecting && !this.#socket.isClosed;
  }

  /** Sends the first rows of the list; what the socket does not take is held. */
  deliverRanges(list: RangeList, count: number, sizeBytes: number, hold: (stream: Stream, sent: number) => void): void {
    this.bytesIn += sizeBytes;
    this.#lane.turnsTo(this);
    // The credit that came with the last of them may have led to the end of the socket.
    if (this.#socket.isClosed) return;
    let sent = 0;
    try {
      sent = Math.max(0, this.#socket.sendRanges(list, count));
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#broken();
      return;
    }
    if (sent > 0) this.#consumed(sent);
    if (sent === sizeBytes) return;
    this.#isWritable = false;
    hold(this, sent);
  }

  /** Copies bytes out of the ring; of a stream that nobody reads any more they are dropped. */
  hold(memory: SharedMemory, offset: number, sizeBytes: number): void {
    if (this.#socket.isClosed || this.#isResetHere) return;
    this.#held.append(memory, offset, sizeBytes);
  }

  /** Counts what came in and is held rather than sent. */
  countIn(sizeBytes: number): void {
    this.bytesIn += sizeBytes;
  }

  onShut(): void {
    this.#isShutThere = true;
    // Both ends are told: the peer may use the name again at once, so nothing more is said about this stream.
    if (this.#isShutHere && (this.saying & says.shut) === 0) this.saying &= ~says.reset;
    this.#deliverHeld();
    this.#settle();
  }

  onReset(): void {
    this.#isResetThere = true;
    // The name is given back by an end of our own, unless there was one.
    if (!this.#isShutHere && !this.#isResetHere) this.#say(says.reset);
    this.#isResetHere = true;
    this.#settle();
    this.#deliverHeld();
    // The program may never read what is held for it.
    if (!this.#socket.isClosed) this.#owner.parts.lookAfter(this);
  }

  /** A call that did not succeed. */
  refuse(errno: number): void {
    this.refusal = errno;
    this.#isResetHere = true;
    this.#say(says.refused);
    this.#closeSocket(true);
    this.#settle();
  }

  /** Said: what was asked to be said. */
  said(flag: number): void {
    this.saying &= ~flag;
    if ((flag & (says.shut | says.reset | says.refused)) !== 0) this.#settle();
    else if (flag === says.open || flag === says.opened) this.resume();
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
    this.saying = 0;
    const isWhole = this.#isShutThere && this.#isShutHere;
    this.#isResetHere = true;
    this.#isNameFree = true;
    if (isWhole && this.#held.count > 0) return;
    this.#closeSocket(!isWhole);
  }

  /** Resets both sides now. */
  abort(): void {
    this.#failed();
  }

  /** While dying, at times: no progress means that the program has stopped, and plain TCP would drop the rest, too. */
  look(): void {
    this.#deliverHeld();
    if (this.#socket.isClosed) return;
    const waiting = this.#held.count + this.#socket.unacknowledgedBytes;
    this.#idleLooks = waiting === this.#lastWaiting ? this.#idleLooks + 1 : 0;
    this.#lastWaiting = waiting;
    if (waiting === 0 || this.#idleLooks >= PATIENCE_LOOKS) this.#closeSocket(true);
  }

  #deliverHeld(): void {
    if (this.#isConnecting || this.#socket.isClosed) return;
    while (this.#held.count > 0 && this.#isWritable) {
      let sent = 0;
      try {
        sent = this.#socket.send(this.#held.memory, this.#held.offset, this.#held.size);
      } catch (error) {
        if (!(error instanceof SystemError)) throw error;
        this.#broken();
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
    if (this.#isResetThere) this.#die();
    else if (this.#isShutThere) this.#shutDown();
  }

  /** The socket was given all that the peer sent before its reset: once it is there, which a reset could overtake, the program is reset. */
  #die(): void {
    if (this.#isShutDown || this.#socket.unacknowledgedBytes === 0) this.#closeSocket(true);
    else this.#owner.parts.lookAfter(this);
  }

  #shutDown(): void {
    const isFirst = !this.#isShutDown;
    this.#isShutDown = true;
    if (this.#isShutHere) {
      // Closing ends it as well.
      this.#closeSocket(false);
      return;
    }
    if (!isFirst) return;
    try {
      this.#socket.shutdownSend();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#broken();
    }
  }

  #consumed(sizeBytes: number): void {
    this.#receiving.consume(sizeBytes);
    if (this.#receiving.isDue && !this.#isShutThere && !this.#isResetThere && !this.#isResetHere)
      this.#say(says.credit);
  }

  #shutHere(): void {
    this.#isShutHere = true;
    this.#say(says.shut);
    this.#settle();
    if (this.#isShutDown) this.#closeSocket(false);
  }

  /** The program cannot be written to. What it sent before may still wait to be read. */
  #broken(): void {
    this.#isReadable = true;
    this.#mustDrain = true;
    this.#held.clear();
    this.resume();
    if (!this.#isReadable || this.#socket.isClosed) return;
    // It waits for credit or room: what is behind them is lost, as with a reset by plain TCP.
    this.#failed();
  }

  /** The program's connection broke, or is to be broken. */
  #failed(): void {
    const isToldAlready = this.#isResetHere || this.#isResetThere || (this.#isShutHere && this.#isShutThere);
    this.#isResetHere = true;
    if (!isToldAlready) this.#say(says.reset);
    this.#closeSocket(true);
    this.#settle();
  }

  #say(flag: number): void {
    if (this.#isNameFree) return;
    const isFirst = this.saying === 0;
    this.saying |= flag;
    if (isFirst) this.#owner.speak(this);
  }

  #waitForTurn(): void {
    if (this.#isQueued) return;
    this.#isQueued = true;
    this.#lane.again(this);
  }

  #waitForRoom(): void {
    if (this.#isWaitingForRoom) return;
    this.#isWaitingForRoom = true;
    this.#owner.waitForRoom(this);
  }

  /** Gives the name back when both sides have ended. */
  #settle(): void {
    if (this.#isNameFree) return;
    const ends = says.open | says.shut | says.reset | says.refused;
    const hasEndedHere = (this.#isShutHere || this.#isResetHere) && (this.saying & ends) === 0;
    if (!hasEndedHere || !(this.#isShutThere || this.#isResetThere)) return;
    this.#isNameFree = true;
    this.saying = 0;
    this.#owner.nameFree(this);
  }

  #closeSocket(isAbrupt: boolean): void {
    if (this.#socket.isClosed) return;
    this.#held.clear();
    this.#receiving.close();
    // First: as soon as the socket is closed, its port may be somebody else's.
    this.#owner.socketClosed(this);
    this.#lane.forget(this.#token);
    this.#socket.resetOnClose(isAbrupt);
    this.#socket.close();
  }
}

/** Not AGAIN, and no count. */
const BROKEN = -2;
