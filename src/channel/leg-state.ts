// The state of a leg: what may be done with a program's socket, and what is to be done next. No
// socket and no ring: events go in, states and actions come out.
//
// A leg reads from the program (towards the peer) and sends to it (from the peer); each half ends
// on its own, and a reset ends both. The kernel tells of a reset once, to connect, send, receive or
// poll, whichever asks first; from then on receive calls it an end. So a reset is kept as the leg's
// failure: what the program sent before is still read, and the end after it is told as a reset.
//
// The leg tells its ends to the peer through StreamEnds, and StreamEnds says what may still be read
// and sent.

import { pollEvents } from '../native/index.ts';
import { recordFlags, type StreamEnds } from './stream-ends.ts';

const { in: IN, out: OUT, error: ERROR, hangup: HANGUP, peerClosed: PEER_CLOSED, urgent: URGENT } = pollEvents;
const CONNECT_EVENTS = OUT | ERROR | HANGUP;
const READ_EVENTS = IN | ERROR | HANGUP | PEER_CLOSED | URGENT;
/**
 * Events after which only EAGAIN says that there is no more: a short read may be followed by an
 * end.
 */
const DRAIN_EVENTS = ERROR | HANGUP | PEER_CLOSED | URGENT;

/** What the stream is to do with the socket. */
export const legActions = {
  none: 0,
  finishConnect: 1,
  /** Send held bytes, then read. */
  transfer: 2,
  read: 3,
  /** End the half towards the program. */
  shutdownSend: 4,
  /** Reset the program as soon as it has acknowledged what it was sent. */
  drain: 5,
  close: 6,
  /** Close with a reset. */
  reset: 7,
} as const;

/** What a receive from the program found. */
export const readResults = {
  /** As much as there was room for: there may be more. */
  full: 0,
  /** Less than there was room for. */
  short: 1,
  again: 2,
  end: 3,
  broken: 4,
} as const;

const connections = { connecting: 0, open: 1, closed: 2 } as const;
const reads = {
  /** The next event tells when there is something. */
  idle: 0,
  ready: 1,
  /** Ready, and to be read until EAGAIN. */
  drain: 2,
} as const;
const sends = { blocked: 0, ready: 1, shut: 2 } as const;
const failures = {
  none: 0,
  /** The program was reset. It can be read to its end, and nothing can be sent to it. */
  error: 1,
  /** As `error`, and the kernel has told of the reset: the end that is read is that reset. */
  reset: 2,
} as const;
const waits = { nothing: 0, turn: 1, room: 2 } as const;

export class LegState {
  readonly #ends: StreamEnds;
  /** One of `connections`; the other fields are of the constants above in the same way. */
  connection: number;
  reading: number = reads.idle;
  sending: number = sends.blocked;
  failure: number = failures.none;
  waiting: number = waits.nothing;

  constructor(ends: StreamEnds, isConnecting: boolean) {
    this.#ends = ends;
    this.connection = isConnecting ? connections.connecting : connections.open;
  }

  get isConnecting(): boolean {
    return this.connection === connections.connecting;
  }

  get isClosed(): boolean {
    return this.connection === connections.closed;
  }

  /** Whether to receive from the program, as far as credit and room go. */
  get mayRead(): boolean {
    return this.reading !== reads.idle && this.connection === connections.open && this.#ends.maySend;
  }

  /** Whether a receive is to be repeated until EAGAIN. */
  get mustDrain(): boolean {
    return this.reading === reads.drain;
  }

  get maySend(): boolean {
    return this.sending === sends.ready && this.connection === connections.open;
  }

  /** Whether records may be sent straight from the ring, where no bytes are held. */
  get maySendAtOnce(): boolean {
    return this.maySend && this.failure === failures.none;
  }

  /** Whether bytes for the program are kept; otherwise nobody will take them. */
  get mayHold(): boolean {
    return this.connection !== connections.closed && this.failure === failures.none && !this.#ends.isResetHere;
  }

  // The socket

  /** Events of epoll, which is edge-triggered. */
  onEvents(events: number): number {
    if (this.isConnecting) return (events & CONNECT_EVENTS) === 0 ? legActions.none : legActions.finishConnect;
    if ((events & ERROR) !== 0) {
      // The program is not read any more, so no receive would tell: what it was sent has met a
      // program that is gone.
      if (this.#ends.isShutHere) return this.fail();
      if (this.failure === failures.none) this.failure = failures.error;
    }
    if ((events & DRAIN_EVENTS) !== 0) this.reading = reads.drain;
    else if ((events & READ_EVENTS) !== 0 && this.reading === reads.idle) this.reading = reads.ready;
    if ((events & OUT) !== 0 && this.sending === sends.blocked) this.sending = sends.ready;
    return legActions.transfer;
  }

  /** The server has accepted. */
  accepted(): void {
    this.sending = sends.ready;
    this.#ends.request(recordFlags.opened);
  }

  /**
   * A connect that was under way succeeded; `isReset`: and the server has reset the connection
   * since.
   */
  connected(isReset: boolean): number {
    this.connection = connections.open;
    if (isReset) this.failure = failures.reset;
    // Other events that came with this one were not used.
    this.reading = reads.drain;
    this.accepted();
    return legActions.transfer;
  }

  /** The server could not be reached. */
  refused(): number {
    this.#ends.refuseHere();
    return legActions.reset;
  }

  /** There is something to read, and no credit. */
  creditGone(): number {
    // A credit resumes the stream, and finds an end of the program then. Its reset must not wait
    // for a receiver that stands still: what the program had not sent yet is lost, as by plain TCP.
    return this.failure === failures.none ? legActions.none : this.fail();
  }

  received(result: number): number {
    switch (result) {
      case readResults.full:
        return legActions.none;
      case readResults.short:
        if (this.reading === reads.ready) this.reading = reads.idle;
        return legActions.none;
      case readResults.again:
        this.reading = reads.idle;
        return legActions.none;
      case readResults.end:
        return this.#readEnd();
      default:
        return this.fail();
    }
  }

  #readEnd(): number {
    this.reading = reads.idle;
    if (this.failure === failures.reset) return this.fail();
    this.#ends.shutHere();
    const isWhole = this.sending === sends.shut;
    if (this.failure === failures.none) return isWhole ? legActions.close : legActions.none;
    // The program had ended its half before it was reset.
    this.#ends.resetHere();
    return isWhole ? legActions.close : legActions.reset;
  }

  sendBlocked(): void {
    if (this.sending === sends.ready) this.sending = sends.blocked;
  }

  /**
   * Nothing can be sent to the program. `isPipe`: EPIPE, so the reset came after an end, which is
   * still there to be read.
   */
  sendFailed(isPipe: boolean): number {
    if (!isPipe) this.failure = failures.reset;
    else if (this.failure === failures.none) this.failure = failures.error;
    if (!this.#ends.maySend) return this.fail();
    // What the program sent before may still wait to be read.
    this.reading = reads.drain;
    return legActions.read;
  }

  /** The socket has taken all that the peer has sent so far. */
  delivered(): number {
    if (this.connection !== connections.open || this.#ends.mayReceive) return legActions.none;
    const isShut = this.sending === sends.shut;
    // A reset could overtake bytes that are not acknowledged. Once an end was sent, it is not held
    // back.
    if (this.#ends.isResetThere) return isShut ? legActions.reset : legActions.drain;
    this.sending = sends.shut;
    // Closing ends both halves.
    if (this.#ends.isShutHere) return legActions.close;
    return isShut ? legActions.none : legActions.shutdownSend;
  }

  /** The program's connection broke, or is to be reset. */
  fail(): number {
    this.#ends.resetHere();
    return legActions.reset;
  }

  closed(): void {
    this.connection = connections.closed;
  }

  /** The peer is gone, or this daemon stops: nobody reads records of the stream. */
  abandoned(hasHeldBytes: boolean): number {
    const { isWhole } = this.#ends;
    this.#ends.abandon();
    if (!isWhole) return legActions.reset;
    return hasHeldBytes ? legActions.none : legActions.close;
  }

  // Reading pauses

  /** False when the leg waits for its turn already. */
  waitForTurn(): boolean {
    return this.#wait(waits.turn);
  }

  /** False when the leg waits for room in the ring already. */
  waitForRoom(): boolean {
    return this.#wait(waits.room);
  }

  resumed(): void {
    this.waiting = waits.nothing;
  }

  #wait(reason: number): boolean {
    const isFirst = this.waiting !== reason;
    this.waiting = reason;
    return isFirst;
  }
}
