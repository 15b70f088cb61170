// The watchdog of one thread: notices other threads that give no sign of life, says so once, and
// gives up after a time.
//
// Time counts only while the watching thread runs, too: a process that was stopped as a whole, or a
// machine that was suspended, has no stuck thread.

import type { SignsOfLife } from './signs-of-life.ts';

interface WatchdogOptions {
  readonly signs: SignsOfLife;
  /** The threads that it watches. */
  readonly threads: readonly number[];
  /** How often `look` is called, about. */
  readonly intervalMs: number;
  /** A thread that was silent for so long is stuck. */
  readonly stuckMs: number;
  /** After so long nobody waits for it any more. Infinite: never. */
  readonly giveUpMs: number;
  readonly onStuck: (thread: number) => void;
  /** It was stuck for so long, and is not any more. */
  readonly onRecovered: (thread: number, silentMs: number) => void;
  readonly onGivenUp: (thread: number, silentMs: number) => void;
}

interface Watched {
  readonly thread: number;
  count: number;
  silentMs: number;
  isGivenUp: boolean;
}

export class Watchdog {
  readonly #options: WatchdogOptions;
  readonly #watched: readonly Watched[];
  #lookedMs: number;

  constructor(options: WatchdogOptions, nowMs = performance.now()) {
    this.#options = options;
    this.#lookedMs = nowMs;
    this.#watched = options.threads.map((thread) => {
      return { thread, count: options.signs.count(thread), silentMs: 0, isGivenUp: false };
    });
  }

  /** How long the thread has been stuck; 0 when it is not. */
  stuckMs(thread: number): number {
    const silentMs = this.#watched.find((watched) => watched.thread === thread)?.silentMs ?? 0;
    return silentMs >= this.#options.stuckMs ? silentMs : 0;
  }

  look(nowMs = performance.now()): void {
    const { signs, intervalMs, stuckMs, giveUpMs, onStuck, onRecovered, onGivenUp } = this.#options;
    const passedMs = Math.min(nowMs - this.#lookedMs, 2 * intervalMs);
    this.#lookedMs = nowMs;
    for (const watched of this.#watched) {
      const { thread, silentMs } = watched;
      const count = signs.count(thread);
      const isSilent = count === watched.count;
      watched.count = count;
      watched.silentMs = isSilent ? silentMs + passedMs : 0;
      if (!isSilent && silentMs >= stuckMs) onRecovered(thread, silentMs);
      if (silentMs < stuckMs && watched.silentMs >= stuckMs) onStuck(thread);
      if (watched.silentMs < giveUpMs || watched.isGivenUp) continue;
      watched.isGivenUp = true;
      onGivenUp(thread, watched.silentMs);
    }
  }
}
