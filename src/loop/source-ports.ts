// Source ports of legs to servers: one of the kernel's choice or, when all are taken, the one of
// ours that has rested longest.
//
// A leg is bound before it connects, so that the server can be shown its true client. Unlike a
// plain connect, an explicit bind gets no port that is in TIME_WAIT: 28,000 short connections,
// closed by the client, would use up all ports for a minute.

import { SystemError } from '../errors.ts';
import { type Address, ip, type Socket } from '../native/index.ts';

/** Other programs may have taken some of our ports meanwhile. */
const MAX_TRIES = 32;
/**
 * A search through all ports that finds none takes the kernel milliseconds, so it is not made for
 * every connection.
 */
const CROWDED_MS = 1000;

export class SourcePorts {
  /**
   * By host: ports that we used and closed, the one that has rested longest first. Never one that
   * is open.
   */
  readonly #resting = new Map<string, Set<number>>();
  #crowdedUntilMs = 0;

  /** Binds the socket to the host and some port. Returns the address. */
  bind(socket: Socket, host: string): Address {
    const isCrowded = this.#crowdedUntilMs !== 0 && performance.now() < this.#crowdedUntilMs;
    if (!isCrowded || !this.#bindResting(socket, host)) this.#bindAny(socket, host);
    const local = socket.localAddress;
    if (local.family !== 'unix') this.#resting.get(host)?.delete(local.port);
    return local;
  }

  /** The port is closed, or about to be. */
  release(local: Address): void {
    if (local.family === 'unix') return;
    let resting = this.#resting.get(local.host);
    if (resting === undefined) {
      resting = new Set();
      this.#resting.set(local.host, resting);
    }
    resting.add(local.port);
  }

  #bindAny(socket: Socket, host: string): void {
    try {
      // Without reuseAddress: with it, the kernel searches the lower half of its ports first, which
      // takes a millisecond for each connection once those are taken.
      socket.bind(ip(host, 0));
      // So that the port can be shared when it rests in TIME_WAIT; all of ours have it.
      socket.setOption('reuseAddress', 1);
    } catch (error) {
      if (!isTaken(error)) throw error;
      this.#crowdedUntilMs = performance.now() + CROWDED_MS;
      if (!this.#bindResting(socket, host)) throw error;
    }
  }

  #bindResting(socket: Socket, host: string): boolean {
    let tries = 0;
    socket.setOption('reuseAddress', 1);
    for (const port of this.#resting.get(host) ?? []) {
      try {
        socket.bind(ip(host, port));
        return true;
      } catch (error) {
        if (!isTaken(error)) throw error;
        this.#resting.get(host)?.delete(port);
      }
      if (++tries === MAX_TRIES) break;
    }
    socket.setOption('reuseAddress', 0);
    return false;
  }
}

function isTaken(error: unknown): boolean {
  return error instanceof SystemError && error.code === 'EADDRINUSE';
}
