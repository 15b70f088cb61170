// Callers that have connected and are not let in yet: a thread is worth starting only for one who asks for it, and whose turn it is.

import { FdWatch, type Socket } from '../../native/index.ts';
import { messageKinds, receiveMessage, type UnixMessage } from '../transports/index.ts';

/** A frontend speaks in the same breath as it connects. */
const PATIENCE_MS = 2000;

interface Caller {
  readonly socket: Socket;
  readonly watch: FdWatch;
  readonly timer: NodeJS.Timeout;
}

export class WaitingRoom implements Disposable {
  readonly #callers = new Set<Caller>();
  readonly #places: number;
  readonly #onKnock: (socket: Socket, message: UnixMessage) => void;

  /** `onKnock` takes the socket over, and the descriptors of the message, which is a knock or brings a machine. */
  constructor(places: number, onKnock: (socket: Socket, message: UnixMessage) => void) {
    this.#places = places;
    this.#onKnock = onKnock;
  }

  /** Takes the socket over. Where all places are taken, the one who has waited longest goes. */
  add(socket: Socket): void {
    this.#makeRoom();
    const timer = setTimeout(() => this.#turnAway(caller), PATIENCE_MS).unref();
    const watch = FdWatch.start(socket.fd, () => this.#hear(caller));
    const caller: Caller = { socket, watch, timer };
    this.#callers.add(caller);
  }

  /** Takes the socket over until `onTurn`, which has it then. Who says more, goes, or is displaced has no turn. */
  hold(socket: Socket, delayMs: number, onTurn: () => void): void {
    this.#makeRoom();
    const timer = setTimeout(() => {
      this.#letGo(caller);
      onTurn();
    }, delayMs).unref();
    const watch = FdWatch.start(socket.fd, () => this.#turnAway(caller));
    const caller: Caller = { socket, watch, timer };
    this.#callers.add(caller);
  }

  close(): void {
    for (const caller of this.#callers) this.#turnAway(caller);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hear(caller: Caller): void {
    try {
      const message = receiveMessage(caller.socket);
      if (message === undefined) return;
      if (message.kind === messageKinds.knock || message.kind === messageKinds.machine) {
        this.#letGo(caller);
        this.#onKnock(caller.socket, message);
        return;
      }
      for (const fd of message.fds) fd.close();
    } catch {
      // Gone again, or talking nonsense: the same to us.
    }
    this.#turnAway(caller);
  }

  #makeRoom(): void {
    if (this.#callers.size < this.#places) return;
    const [oldest] = this.#callers;
    this.#turnAway(oldest);
  }

  #turnAway(caller: Caller): void {
    this.#letGo(caller);
    caller.socket.close();
  }

  #letGo(caller: Caller): void {
    this.#callers.delete(caller);
    clearTimeout(caller.timer);
    caller.watch.close();
  }
}
