// The progress of a transfer: a bar with rate and time left on a terminal, and nothing elsewhere.

import { ageText, bytesText, rateText } from './figures.ts';
import type { OutputStream } from './world.ts';

const REDRAW_MS = 200;
const BAR_CELLS = 24;
/** For a terminal that does not report its width, or reports 0. */
const DEFAULT_COLUMNS = 80;
/** The rate is that of the last seconds, not of the whole time. */
const RATE_MS = 5000;
const CLEAR_LINE = '\r\u001b[K';

interface ProgressOptions {
  readonly output: OutputStream;
  readonly nowMs: () => number;
  readonly isQuiet: boolean;
}

interface Sample {
  readonly ms: number;
  readonly bytes: number;
}

export class Progress implements Disposable {
  readonly #output: OutputStream;
  readonly #nowMs: () => number;
  readonly #isShown: boolean;
  #what = '';
  #samples: Sample[] = [];
  #drawnMs = Number.NEGATIVE_INFINITY;
  #isDrawn = false;

  constructor({ output, nowMs, isQuiet }: ProgressOptions) {
    this.#output = output;
    this.#nowMs = nowMs;
    this.#isShown = output.isTTY === true && !isQuiet;
  }

  /** May be called often; it redraws seldom. */
  update(what: string, bytes: number, totalBytes: number | undefined): void {
    if (!this.#isShown) return;
    const ms = this.#nowMs();
    // Another activity or attempt starts with a rate of its own.
    if (what !== this.#what || bytes < (this.#samples.at(-1)?.bytes ?? 0)) this.#samples = [];
    this.#what = what;
    const isWhole = bytes === totalBytes;
    if (ms - this.#drawnMs < REDRAW_MS && !isWhole) return;
    this.#drawnMs = ms;
    this.#samples = [...this.#samples.filter((sample) => ms - sample.ms <= RATE_MS), { ms, bytes }];
    const { columns = 0 } = this.#output;
    const line = this.#line(bytes, totalBytes).slice(0, (columns > 1 ? columns : DEFAULT_COLUMNS) - 1);
    this.#output.write(`${CLEAR_LINE}${line}`);
    this.#isDrawn = true;
  }

  /** Clears the line. */
  clear(): void {
    if (this.#isDrawn) this.#output.write(CLEAR_LINE);
    this.#isDrawn = false;
  }

  [Symbol.dispose](): void {
    this.clear();
  }

  #line(bytes: number, totalBytes: number | undefined): string {
    const [first, last] = [this.#samples[0], this.#samples.at(-1)];
    const seconds = ((last?.ms ?? 0) - (first?.ms ?? 0)) / 1000;
    const rate = seconds > 0 ? ((last?.bytes ?? 0) - (first?.bytes ?? 0)) / seconds : 0;
    const speed = rate > 0 ? `  ${rateText(rate)}` : '';
    if (totalBytes === undefined) return `${this.#what}  ${bytesText(bytes)}${speed}`;
    const share = totalBytes === 0 ? 1 : Math.min(1, bytes / totalBytes);
    const full = Math.round(share * BAR_CELLS);
    const bar = `[${'#'.repeat(full)}${'.'.repeat(BAR_CELLS - full)}]`;
    const left = rate > 0 && bytes < totalBytes ? `  ${ageText(((totalBytes - bytes) / rate) * 1000)} left` : '';
    return `${this.#what} ${bar} ${Math.floor(share * 100)}%  ${bytesText(bytes)} of ${bytesText(totalBytes)}${speed}${left}`;
  }
}
