// The daemon's events for one HTTP client: server-sent events, bounded in memory, connection events
// sampled.

import type { DaemonEvents, EventKind } from '../status/index.ts';
import { eventKindNames, subscribe } from '../status/index.ts';

/** Events that may wait for a client that does not read. */
const MAX_WAITING = 256;
/** Connection events a second; a person reads no more, and statistics come from /metrics. */
const CONNECTIONS_PER_SECOND = 20;
/** Shows that the stream is alive, and reports what was skipped last. */
const HEARTBEAT_MS = 15_000;

interface EventStreamOptions {
  readonly onClose?: () => void;
  /** Monotonic, in ms. */
  readonly nowMs?: () => number;
}

export class EventStream {
  readonly #nowMs: () => number;
  readonly #onClose: () => void;
  readonly #subscriptions = new DisposableStack();
  readonly #heartbeat: NodeJS.Timeout;
  #waiting: string[] = ['retry: 2000\n\n'];
  #skipped = 0;
  #wake: (() => void) | undefined;
  #isClosed = false;
  #isCancelled = false;
  #allowance = CONNECTIONS_PER_SECOND;
  #allowanceMs: number;

  constructor({ nowMs = () => performance.now(), onClose = () => {} }: EventStreamOptions = {}) {
    this.#nowMs = nowMs;
    this.#onClose = onClose;
    this.#allowanceMs = nowMs();
    for (const kind of eventKindNames) {
      this.#subscriptions.use(subscribe(kind, (event) => this.#hear(kind, event)));
    }
    this.#heartbeat = setInterval(() => this.#add(': still here\n\n'), HEARTBEAT_MS).unref();
  }

  /** The body of the response. It is cancelled when the client disconnects. */
  body(): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder();
    return new ReadableStream<Uint8Array>(
      {
        pull: async (controller) => {
          const text = await this.next();
          if (text !== null) controller.enqueue(encoder.encode(text));
          else if (!this.#isCancelled) controller.close();
        },
        cancel: () => {
          this.#isCancelled = true;
          this.close();
        },
      },
      // Nothing is queued ahead of the reader: events wait in this object, where they are counted.
      { highWaterMark: 0 },
    );
  }

  /** All waiting events as soon as there are any; null when closed. */
  async next(): Promise<string | null> {
    while (this.#waiting.length === 0 && !this.#isClosed) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      await promise;
    }
    if (this.#isClosed) return null;
    const texts = this.#waiting;
    this.#waiting = [];
    if (this.#skipped > 0) texts.push(message('skipped', { count: this.#skipped }));
    this.#skipped = 0;
    return texts.join('');
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    clearInterval(this.#heartbeat);
    this.#subscriptions.dispose();
    this.#wake?.();
    this.#onClose();
  }

  #hear<K extends EventKind>(kind: K, event: DaemonEvents[K]): void {
    const isTooMuch = this.#waiting.length >= MAX_WAITING || (kind === 'connection' && !this.#isAllowed());
    if (isTooMuch) this.#skipped++;
    else this.#add(message(kind, { atMs: Date.now(), ...event }));
  }

  #add(text: string): void {
    if (this.#waiting.length < MAX_WAITING) this.#waiting.push(text);
    this.#wake?.();
  }

  /** A token bucket that holds one second's tokens. */
  #isAllowed(): boolean {
    const nowMs = this.#nowMs();
    const earned = ((nowMs - this.#allowanceMs) / 1000) * CONNECTIONS_PER_SECOND;
    this.#allowance = Math.min(CONNECTIONS_PER_SECOND, this.#allowance + earned);
    this.#allowanceMs = nowMs;
    if (this.#allowance < 1) return false;
    this.#allowance--;
    return true;
  }
}

/** JSON has no raw line breaks, so that one `data:` line holds it. */
function message(event: string, data: object): string {
  return `event: ${event}\ndata: ${JSON.stringify(data)}\n\n`;
}
