// The heartbeat of a connection: sends pings at an interval, and tells when nothing comes back. One
// side is enough: the other hears its pings, and sends its own only when they stay away.

import { ProtocolError } from '../errors.ts';

/** A peer that sends lines but leaves so many pings unanswered does not work. */
const MAX_UNANSWERED = 64;

export interface HeartbeatSpec {
  /** Between two pings. */
  readonly heartbeatMs: number;
  /** A peer that is silent for so long is dead. */
  readonly deadMs: number;
}

export interface HeartbeatOptions extends HeartbeatSpec {
  /**
   * The other side sends pings: this one sends only its first, and when nothing has come lately.
   */
  readonly isSecond?: boolean;
  readonly ping: (number: number) => void;
  readonly onDead: (reason: string) => void;
}

export class Heartbeat implements Disposable {
  readonly #options: HeartbeatOptions;
  readonly #timer: NodeJS.Timeout;
  /** When each ping left that was not answered yet, by its number. */
  readonly #unanswered = new Map<number, number>();
  #number = 0;
  #quietTicks = 0;
  #roundTripMs = -1;

  constructor(options: HeartbeatOptions) {
    this.#options = options;
    this.#timer = setInterval(() => this.#tick(), options.heartbeatMs);
    this.#ping();
  }

  /** Of the last ping that was answered; -1 before the first. */
  get roundTripMs(): number {
    return this.#roundTripMs;
  }

  /** Something came from the peer. */
  heard(): void {
    this.#quietTicks = 0;
  }

  /** The peer answered. Throws a ProtocolError when there was no such ping. */
  answered(number: number): void {
    const sentMs = this.#unanswered.get(number);
    if (sentMs === undefined) throw new ProtocolError('a pong without a ping');
    this.#unanswered.delete(number);
    this.#roundTripMs = performance.now() - sentMs;
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  [Symbol.dispose](): void {
    this.stop();
  }

  #tick(): void {
    // Silence is counted in ticks and not by the clock: while this process was stopped, lines of
    // the peer waited unread.
    this.#quietTicks++;
    const { heartbeatMs, deadMs, onDead, isSecond = false } = this.#options;
    if (isSecond && this.#quietTicks === 1) return;
    if (this.#quietTicks * heartbeatMs >= deadMs) onDead(`silent for ${deadMs} ms`);
    else if (this.#unanswered.size >= MAX_UNANSWERED) onDead(`${MAX_UNANSWERED} pings without an answer`);
    else this.#ping();
  }

  #ping(): void {
    this.#unanswered.set(++this.#number, performance.now());
    this.#options.ping(this.#number);
  }
}
