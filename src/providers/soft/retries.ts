// How often a request may be retransmitted, and how long to wait for a peer that is not ready.

export interface RetrySettings {
  readonly retryCount: number;
  /** 7 is for ever. */
  readonly rnrRetry: number;
  /** 4.096 us times 2 to this; 0 is for ever. */
  readonly timeout: number;
}

/** The attributes of the step from RTR to RTS. */
export interface RequesterSettings extends RetrySettings {
  readonly sqPsn: number;
  readonly maxRdAtomic: number;
}

const FOR_EVER = 7;

/**
 * What the 5-bit codes of the RNR timer mean, in us (InfiniBand specification, table "RNR NAK timer
 * field").
 */
const rnrTimersUs = [
  655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10_240,
  15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];

export function rnrTimerNs(code: number): number {
  return rnrTimersUs[code & 31] * 1000;
}

/** Time without an answer before a retry; Infinity for none. */
export function ackTimeoutNs(timeout: number): number {
  return timeout === 0 ? Number.POSITIVE_INFINITY : 4096 * 2 ** timeout;
}

export class Retries {
  #retryCount = 7;
  #rnrRetry = FOR_EVER;
  #left = 7;
  #notReadyLeft = FOR_EVER;

  adjust({ retryCount, rnrRetry }: Partial<RetrySettings>): void {
    this.#retryCount = retryCount ?? this.#retryCount;
    this.#rnrRetry = rnrRetry ?? this.#rnrRetry;
    this.reset();
  }

  /** The peer has answered a request. */
  reset(): void {
    this.#left = this.#retryCount;
    this.#notReadyLeft = this.#rnrRetry;
  }

  /** False when there is none left. */
  take(): boolean {
    if (this.#left === 0) return false;
    this.#left--;
    return true;
  }

  takeNotReady(): boolean {
    if (this.#notReadyLeft === 0) return false;
    if (this.#rnrRetry !== FOR_EVER) this.#notReadyLeft--;
    // The peer is there: RNR NAKs have a count of their own.
    this.#left = this.#retryCount;
    return true;
  }
}
