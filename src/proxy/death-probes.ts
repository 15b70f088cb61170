// Tells a daemon that has died from one that cannot be reached: a dead one's host refuses connections to its port.
//
// The side with the greater name does not dial, and would wait for the whole of `recoverySeconds` to learn it.

import { connect } from 'node:net';
import type { ControlPeer } from './control/index.ts';

const LOOK_MS = 200;
/** One refusal could be a daemon that is just being replaced; that one is another anyway. */
const REFUSALS = 2;

export class DeathProbes implements Disposable {
  readonly #addressOf: (peer: string) => ControlPeer | undefined;
  readonly #onDead: (peer: string) => void;
  readonly #timers = new Map<string, NodeJS.Timeout>();

  constructor(addressOf: (peer: string) => ControlPeer | undefined, onDead: (peer: string) => void) {
    this.#addressOf = addressOf;
    this.#onDead = onDead;
  }

  /** Its control connection has ended. */
  start(peer: string): void {
    this.stop(peer);
    this.#later(peer, 0);
  }

  stop(peer: string): void {
    clearTimeout(this.#timers.get(peer));
    this.#timers.delete(peer);
  }

  [Symbol.dispose](): void {
    for (const peer of this.#timers.keys()) this.stop(peer);
  }

  #later(peer: string, refusals: number): void {
    this.#timers.set(
      peer,
      setTimeout(() => this.#look(peer, refusals), LOOK_MS),
    );
  }

  #look(peer: string, refusals: number): void {
    const address = this.#addressOf(peer);
    if (address === undefined) {
      this.stop(peer);
      return;
    }
    const socket = connect({ host: address.host, port: address.port, timeout: LOOK_MS });
    const done = (isRefused: boolean): void => {
      socket.destroy();
      if (!this.#timers.has(peer)) return;
      const count = isRefused ? refusals + 1 : 0;
      if (count < REFUSALS) {
        this.#later(peer, count);
        return;
      }
      this.stop(peer);
      this.#onDead(peer);
    };
    // Somebody listens: it lives, or another has taken its place and will say so.
    socket.once('connect', () => done(false));
    socket.once('timeout', () => done(false));
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code === 'ECONNREFUSED'));
  }
}
