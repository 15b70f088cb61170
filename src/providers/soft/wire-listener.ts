// Where other devices find a wire: accepts until none waits, and pauses while the process has no
// descriptors left. Whoever waits meanwhile dials again.

import { isShortage } from '../../errors.ts';
import { pollEvents, type Socket } from '../../native/index.ts';
import type { SoftQp } from './qp.ts';
import type { WireHost } from './wire.ts';

/** Descriptors may be freed without anybody noticing, so accepting is tried again. */
const PAUSE_NS = 100_000_000;

export class WireListener<Qp extends SoftQp> implements Disposable {
  readonly #host: WireHost<Qp>;
  readonly #listener: Socket;
  readonly #onAccept: (socket: Socket) => void;
  #token: number;

  /** Takes the listener over. `onAccept` takes each socket over, also when it throws a shortage. */
  constructor(host: WireHost<Qp>, listener: Socket, onAccept: (socket: Socket) => void) {
    this.#host = host;
    this.#listener = listener;
    this.#onAccept = onAccept;
    this.#token = this.#watch();
  }

  close(): void {
    this.#host.unschedule(this);
    if (this.#token >= 0) this.#host.unwatch(this.#listener.fd, this.#token);
    this.#listener.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #watch(): number {
    return this.#host.watch(this.#listener.fd, pollEvents.in, () => this.#accept());
  }

  #accept(): void {
    try {
      for (let socket = this.#listener.accept(); socket !== undefined; socket = this.#listener.accept()) {
        this.#onAccept(socket);
      }
    } catch (error) {
      if (!isShortage(error)) throw error;
      // Who waits there would be told of again at once, and for ever.
      this.#host.unwatch(this.#listener.fd, this.#token);
      this.#token = -1;
      this.#host.schedule(this, PAUSE_NS, () => {
        this.#token = this.#watch();
      });
    }
  }
}
