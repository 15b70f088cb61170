// Clients of this host that were accepted while there is no link to carry them: they wait until it
// is made, in order.

import type { Socket } from '../native/index.ts';
import type { StreamInfo } from './stream.ts';
import { MAX_STREAMS } from './stream-table.ts';

interface WaitingClient {
  readonly socket: Socket;
  readonly info: StreamInfo;
}

export class WaitingClients {
  readonly #clients: WaitingClient[] = [];
  /** Since when the first of them has waited; infinite when nobody waits. */
  sinceNs = Number.POSITIVE_INFINITY;

  get count(): number {
    return this.#clients.length;
  }

  /** False when as many wait as a link has streams. */
  add(socket: Socket, info: StreamInfo, nowNs: number): boolean {
    if (this.#clients.length === MAX_STREAMS) return false;
    if (this.#clients.length === 0) this.sinceNs = nowNs;
    this.#clients.push({ socket, info });
    return true;
  }

  /** All of them, who wait no longer. */
  take(): readonly WaitingClient[] {
    this.sinceNs = Number.POSITIVE_INFINITY;
    return this.#clients.splice(0);
  }
}
