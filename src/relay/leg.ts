// One leg of a carried connection: a socket, what is known of it, and the bytes from it that the other leg has not taken yet.

import type { EventLoop, PooledBuffer, Watched } from '../loop/index.ts';
import { pollEvents, type Socket } from '../native/index.ts';

const EVENTS = pollEvents.in | pollEvents.out | pollEvents.peerClosed | pollEvents.urgent | pollEvents.edge;
const { in: IN, out: OUT, error: ERROR, hangup: HANGUP, peerClosed: PEER_CLOSED, urgent: URGENT } = pollEvents;
const TO_READ = IN | ERROR | HANGUP | PEER_CLOSED | URGENT;
const TO_DRAIN = ERROR | HANGUP | PEER_CLOSED | URGENT;

/** What a leg tells of itself. */
export interface LegOwner {
  advance(): void;
}

export class Leg implements Watched {
  readonly socket: Socket;
  readonly #lane: EventLoop;
  readonly #token: number;
  readonly #owner: LegOwner;
  /** A connect is under way; `isWritable` says that there is news of it. */
  isConnecting = false;
  isReadable = false;
  isWritable = false;
  /** A short read is not the last one: an end, an error or an urgent mark is behind it. */
  mustDrain = false;
  /** The end of the peer's bytes, or the error that stands for it, was read. */
  isEnded = false;
  /** No more will be sent to the peer. */
  isShut = false;
  /** Reset, timed out or broken otherwise. */
  hasFailed = false;
  /** Bytes from here that the other leg has not taken: `held` from `heldStart` to `heldEnd`. */
  held: PooledBuffer | undefined = undefined;
  heldStart = 0;
  heldEnd = 0;
  receivedBytes = 0;

  constructor(lane: EventLoop, socket: Socket, owner: LegOwner) {
    this.socket = socket;
    this.#lane = lane;
    this.#owner = owner;
    this.#token = lane.watch(socket.fd, EVENTS, this);
  }

  onEvents(events: number): void {
    if (this.isConnecting) {
      // Whether it became anything is asked of the socket.
      if ((events & (OUT | ERROR | HANGUP)) !== 0) this.isWritable = true;
    } else {
      if ((events & TO_READ) !== 0) this.isReadable = true;
      if ((events & OUT) !== 0) this.isWritable = true;
      if ((events & TO_DRAIN) !== 0) this.mustDrain = true;
      if ((events & ERROR) !== 0) this.hasFailed = true;
    }
    this.#owner.advance();
  }

  get heldBytes(): number {
    return this.held === undefined ? 0 : this.heldEnd - this.heldStart;
  }

  /** `isAbrupt`: the peer reads ECONNRESET instead of an end. */
  close(isAbrupt: boolean): void {
    if (this.socket.isClosed) return;
    this.#lane.forget(this.#token);
    this.socket.resetOnClose(isAbrupt);
    this.socket.close();
  }
}
