// Connections that are not admitted yet: a thread is started only for a peer that asks to be
// served, and when it is its turn.

import { FdWatch, type Socket } from '../../../native/index.ts';
import { messageKinds, receiveMessage, type UnixMessage } from '../../transports/index.ts';

/**
 * How long a peer may take to send its first message. A frontend sends it right after it has
 * connected.
 */
const FIRST_MESSAGE_MS = 2000;

interface Pending {
  readonly socket: Socket;
  readonly watch: FdWatch;
  readonly timer: NodeJS.Timeout;
}

export class PendingConnections implements Disposable {
  readonly #connections = new Set<Pending>();
  readonly #capacity: number;
  readonly #onRequest: (socket: Socket, message: UnixMessage) => void;

  /**
   * `onRequest` takes over the socket and the descriptors of the message, which asks to serve a
   * guest or a machine.
   */
  constructor(capacity: number, onRequest: (socket: Socket, message: UnixMessage) => void) {
    this.#capacity = capacity;
    this.#onRequest = onRequest;
  }

  /** Takes the socket over. Where there are too many, the one that has waited longest is closed. */
  add(socket: Socket): void {
    this.#makeRoom();
    const timer = setTimeout(() => this.#drop(pending), FIRST_MESSAGE_MS).unref();
    const watch = FdWatch.start(socket.fd, () => this.#hear(pending));
    const pending: Pending = { socket, watch, timer };
    this.#connections.add(pending);
  }

  /**
   * Takes the socket over until `onTurn` gets it. A peer that sends more, closes, or is displaced
   * has no turn.
   */
  hold(socket: Socket, delayMs: number, onTurn: () => void): void {
    this.#makeRoom();
    const timer = setTimeout(() => {
      this.#remove(pending);
      onTurn();
    }, delayMs).unref();
    const watch = FdWatch.start(socket.fd, () => this.#drop(pending));
    const pending: Pending = { socket, watch, timer };
    this.#connections.add(pending);
  }

  close(): void {
    for (const pending of this.#connections) this.#drop(pending);
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #hear(pending: Pending): void {
    try {
      const message = receiveMessage(pending.socket);
      if (message === undefined) return;
      if (message.kind === messageKinds.request || message.kind === messageKinds.machine) {
        this.#remove(pending);
        this.#onRequest(pending.socket, message);
        return;
      }
      for (const fd of message.fds) fd.close();
    } catch {
      // The peer has closed the connection, or what it sent is no message.
    }
    this.#drop(pending);
  }

  #makeRoom(): void {
    if (this.#connections.size < this.#capacity) return;
    const [oldest] = this.#connections;
    this.#drop(oldest);
  }

  #drop(pending: Pending): void {
    this.#remove(pending);
    pending.socket.close();
  }

  #remove(pending: Pending): void {
    this.#connections.delete(pending);
    clearTimeout(pending.timer);
    pending.watch.close();
  }
}
