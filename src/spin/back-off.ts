// A back-off: a time in which a spin policy does not spin, because others need the processor.
// Longer each time, up to a limit.

export interface BackOffTuning {
  readonly firstNs: number;
  readonly longestNs: number;
  /**
   * A back-off that begins so long after the end of the last one is a first one again. Default: the
   * length of the last one.
   */
  readonly forgetNs?: number;
}

export class BackOff {
  readonly #tuning: BackOffTuning;
  #lengthNs: number;
  #untilNs = Number.NEGATIVE_INFINITY;

  constructor(tuning: BackOffTuning) {
    this.#tuning = tuning;
    this.#lengthNs = tuning.firstNs;
  }

  isActive(nowNs: number): boolean {
    return nowNs < this.#untilNs;
  }

  begin(nowNs: number): void {
    const { firstNs, longestNs, forgetNs = this.#lengthNs } = this.#tuning;
    const isAgain = nowNs - this.#untilNs < forgetNs;
    this.#lengthNs = isAgain ? Math.min(2 * this.#lengthNs, longestNs) : firstNs;
    this.#untilNs = nowNs + this.#lengthNs;
  }
}
