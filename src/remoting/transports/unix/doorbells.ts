// The doorbells of one half of the unix transport: an eventfd for each direction, and a socket that
// tells when the other side ends.

import { type EventFd, Poller, pollEvents, type Socket } from '../../../native/index.ts';

const DOORBELL = 0;
const SOCKET = 1;

export class UnixDoorbells implements Disposable {
  readonly socket: Socket;
  readonly #own: EventFd;
  readonly #peer: EventFd;
  readonly #poller: Poller;
  #isAlive = true;

  /** Takes all of them over. `own` is rung by the other side, `peer` by this one. */
  constructor(socket: Socket, own: EventFd, peer: EventFd) {
    this.socket = socket;
    this.#own = own;
    this.#peer = peer;
    this.#poller = Poller.create(2);
    this.#poller.add(own.fd, pollEvents.in, DOORBELL);
    // Not for `in`: messages with descriptors stay in the socket until they are asked for.
    this.#poller.add(socket.fd, pollEvents.peerClosed, SOCKET);
  }

  get fd(): number {
    return this.#poller.fd;
  }

  takeDoorbell(): boolean {
    if (!this.#isAlive) return false;
    const count = this.#poller.wait(0);
    for (let index = 0; index < count; index++) {
      if (this.#poller.token(index) === DOORBELL) this.#own.take();
      else this.#isAlive = false;
    }
    return this.#isAlive;
  }

  ringDoorbell(): void {
    this.#peer.signal();
  }

  close(): void {
    this.#isAlive = false;
    this.#poller.close();
    this.#own.close();
    this.#peer.close();
    this.socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
