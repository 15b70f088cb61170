// Limits error messages: the same line once a minute, and only so many different ones.

const WINDOW_MS = 60_000;
/** Different lines in a window. An unknown peer can put text of its own into some. */
const MAX_LINES = 100;

export class ErrorThrottle {
  readonly #tell: (message: string, peer: string) => void;
  readonly #told = new Set<string>();
  #windowMs = Number.NEGATIVE_INFINITY;

  constructor(tell: (message: string, peer: string) => void) {
    this.#tell = tell;
  }

  /** `peer`: the one that caused it, if any. */
  report(message: string, peer = '', nowMs = performance.now()): void {
    if (nowMs - this.#windowMs >= WINDOW_MS) {
      this.#windowMs = nowMs;
      this.#told.clear();
    }
    if (this.#told.has(message) || this.#told.size > MAX_LINES) return;
    this.#told.add(message);
    const isLast = this.#told.size > MAX_LINES;
    this.#tell(
      isLast ? `more than ${MAX_LINES} errors in ${WINDOW_MS / 1000} s; the rest is left out` : message,
      isLast ? '' : peer,
    );
  }
}
