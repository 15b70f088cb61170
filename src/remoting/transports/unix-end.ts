// One end of the unix transport: an eventfd rung by the other side, one to ring it, and a socket whose end is its end.

import { type EventFd, Poller, pollEvents, type Socket } from '../../native/index.ts';

const BELL = 0;
const SOCKET = 1;

export class UnixEnd implements Disposable {
  readonly socket: Socket;
  readonly #heard: EventFd;
  readonly #rung: EventFd;
  readonly #poller: Poller;
  #isAlive = true;

  /** Takes all of them over. */
  constructor(socket: Socket, heard: EventFd, rung: EventFd) {
    this.socket = socket;
    this.#heard = heard;
    this.#rung = rung;
    this.#poller = Poller.create(2);
    this.#poller.add(heard.fd, pollEvents.in, BELL);
    // Not for `in`: descriptors wait in the socket until somebody asks for them.
    this.#poller.add(socket.fd, pollEvents.peerClosed, SOCKET);
  }

  get fd(): number {
    return this.#poller.fd;
  }

  take(): boolean {
    if (!this.#isAlive) return false;
    const count = this.#poller.wait(0);
    for (let index = 0; index < count; index++) {
      if (this.#poller.token(index) === BELL) this.#heard.take();
      else this.#isAlive = false;
    }
    return this.#isAlive;
  }

  ring(): void {
    this.#rung.signal();
  }

  close(): void {
    this.#isAlive = false;
    this.#poller.close();
    this.#heard.close();
    this.#rung.close();
    this.socket.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
