// A task that many events ask for. The first that asks gets it in this turn; those that ask soon
// after share the next one. Where they go on, it comes so late that the task takes no more than its
// share of a processor.

interface PacedTaskOptions {
  readonly run: () => void;
  /** Between the end of one and the start of the next, at least. */
  readonly leastPauseMs: number;
  /** And at most, whatever it takes: nobody waits longer. */
  readonly mostPauseMs?: number;
  /** Of a processor, from 0 to 1, in the long run. */
  readonly maxShare: number;
  /** So much of its share is saved while nobody asks. */
  readonly savedMs: number;
  /** The processor time of this thread so far. */
  readonly cpuMs?: () => number;
}

export class PacedTask implements Disposable {
  readonly #options: PacedTaskOptions;
  readonly #cpuMs: () => number;
  #immediate: NodeJS.Immediate | undefined;
  #timer: NodeJS.Timeout | undefined;
  /** What is left of its share of the processor; less than nothing after a run that took more. */
  #leftMs: number;
  #endedMs = Number.NEGATIVE_INFINITY;
  #isOver = false;

  constructor(options: PacedTaskOptions) {
    this.#options = options;
    this.#leftMs = options.savedMs;
    this.#cpuMs = options.cpuMs ?? threadCpuMs;
  }

  /** It runs after this: at the end of this turn, or when its pause is over. */
  request(): void {
    if (this.#isOver || this.#immediate !== undefined || this.#timer !== undefined) return;
    const { leastPauseMs, mostPauseMs = Number.POSITIVE_INFINITY, maxShare } = this.#options;
    const pauseMs = Math.min(mostPauseMs, Math.max(leastPauseMs, -this.#leftMs / maxShare));
    const waitMs = this.#endedMs + pauseMs - performance.now();
    if (waitMs <= 0) this.#immediate = setImmediate(() => this.run());
    else this.#timer = setTimeout(() => this.run(), waitMs);
  }

  /** Runs it now, whoever has asked for it. */
  run(): void {
    this.#forget();
    if (this.#isOver) return;
    const { run, maxShare, savedMs } = this.#options;
    this.#leftMs = Math.min(savedMs, this.#leftMs + (performance.now() - this.#endedMs) * maxShare);
    const startMs = this.#cpuMs();
    try {
      run();
    } finally {
      this.#leftMs -= this.#cpuMs() - startMs;
      this.#endedMs = performance.now();
    }
  }

  /** It runs no more, whoever asks. */
  [Symbol.dispose](): void {
    this.#isOver = true;
    this.#forget();
  }

  #forget(): void {
    clearImmediate(this.#immediate);
    clearTimeout(this.#timer);
    this.#immediate = undefined;
    this.#timer = undefined;
  }
}

/** Not by the clock: a thread that waits for a processor has not used it. */
function threadCpuMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}
