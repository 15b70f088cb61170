// Tells a daemon that has died from one that cannot be reached: a dead one's host refuses
// connections to its port.
//
// The daemon with the greater name does not dial, so without this probe it would learn of the death
// only after the whole of `recoverySeconds`.

import { connect } from 'node:net';
import type { ControlPeer } from './control/index.ts';

const INTERVAL_MS = 200;
/**
 * Where nothing answers, probes become rarer: a thousand peers behind a cable that was drawn would
 * keep a processor busy.
 */
const LAST_INTERVAL_MS = 2000;
/**
 * One refusal could come from a daemon that is being replaced; its successor connects and says so.
 */
const REFUSALS = 2;

export class DeathProbe {
  readonly #placeOf: () => ControlPeer;
  readonly #onDead: () => void;
  #timer: NodeJS.Timeout | undefined;

  constructor(placeOf: () => ControlPeer, onDead: () => void) {
    this.#placeOf = placeOf;
    this.#onDead = onDead;
  }

  /** The control connection has ended. */
  start(): void {
    this.stop();
    this.#schedule(0, INTERVAL_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #schedule(refusals: number, intervalMs: number): void {
    this.#timer = setTimeout(() => this.#probe(refusals, intervalMs), intervalMs);
  }

  #probe(refusals: number, intervalMs: number): void {
    const { host, port } = this.#placeOf();
    const timer = this.#timer;
    const socket = connect({ host, port, timeout: INTERVAL_MS });
    const done = (isRefused: boolean): void => {
      socket.destroy();
      // It was stopped, or started anew.
      if (this.#timer !== timer) return;
      const count = isRefused ? refusals + 1 : 0;
      if (count < REFUSALS) {
        const nextMs = isRefused ? INTERVAL_MS : Math.min(2 * intervalMs, LAST_INTERVAL_MS);
        this.#schedule(count, nextMs);
        return;
      }
      this.stop();
      this.#onDead();
    };
    // Something listens there: the daemon lives, or another has taken its place and will say so.
    socket.once('connect', () => done(false));
    socket.once('timeout', () => done(false));
    socket.once('error', (error: NodeJS.ErrnoException) => done(error.code === 'ECONNREFUSED'));
  }
}
