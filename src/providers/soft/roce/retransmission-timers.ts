// The timers of a requester: after the timeout it retransmits, before that it probes, and after an
// RNR NAK it waits for as long as the peer asked.

import { ackTimeoutNs, rnrTimerNs } from '../retries.ts';

/**
 * A peer that has not answered for this long is probed. That is not a retry, because nothing is
 * known to be lost.
 */
const FIRST_PROBE_NS = 10_000_000;

export interface TimersOwner {
  /** As of this turn. */
  readonly nowNs: number;
  /** Calls `tick` at this time or soon after. */
  wakeAt(ns: number): void;
}

type Due = 'nothing' | 'firstProbe' | 'probe' | 'retry';

export class RetransmissionTimers {
  readonly #owner: TimersOwner;
  #timeoutNs = Number.POSITIVE_INFINITY;
  #deadlineNs = Number.POSITIVE_INFINITY;
  #probeNs = Number.POSITIVE_INFINITY;
  #probeAfterNs = FIRST_PROBE_NS;
  /** The peer asked to wait until then; 0 when it did not. */
  #notReadyUntilNs = 0;

  constructor(owner: TimersOwner) {
    this.#owner = owner;
  }

  set timeout(code: number) {
    this.#timeoutNs = ackTimeoutNs(code);
  }

  get isPeerNotReady(): boolean {
    return this.#notReadyUntilNs !== 0;
  }

  /** From now on. */
  start(isIdle: boolean): void {
    const { nowNs } = this.#owner;
    this.#deadlineNs = nowNs + this.#timeoutNs;
    this.#probeNs = nowNs + this.#probeAfterNs;
    if (!isIdle) this.#owner.wakeAt(Math.min(this.#deadlineNs, this.#probeNs));
  }

  /** The peer has answered something. */
  startAnew(isIdle: boolean): void {
    this.#probeAfterNs = FIRST_PROBE_NS;
    this.start(isIdle);
  }

  waitForPeer(timerCode: number): void {
    this.#notReadyUntilNs = this.#owner.nowNs + rnrTimerNs(timerCode);
    this.#owner.wakeAt(this.#notReadyUntilNs);
  }

  /** Time has passed. */
  tick(isIdle: boolean): Due {
    const { nowNs } = this.#owner;
    if (this.#notReadyUntilNs !== 0) {
      if (nowNs < this.#notReadyUntilNs) this.#owner.wakeAt(this.#notReadyUntilNs);
      else {
        this.#notReadyUntilNs = 0;
        this.start(isIdle);
      }
      return 'nothing';
    }
    if (isIdle) return 'nothing';
    if (nowNs >= this.#deadlineNs) {
      this.#probeAfterNs = FIRST_PROBE_NS;
      return 'retry';
    }
    const isFirst = this.#probeAfterNs === FIRST_PROBE_NS;
    const isDue = nowNs >= this.#probeNs;
    if (isDue) this.#probeAfterNs *= 2;
    this.#probeNs = nowNs + this.#probeAfterNs;
    this.#owner.wakeAt(Math.min(this.#deadlineNs, this.#probeNs));
    if (!isDue) return 'nothing';
    return isFirst ? 'firstProbe' : 'probe';
  }

  stop(): void {
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#probeNs = Number.POSITIVE_INFINITY;
    this.#probeAfterNs = FIRST_PROBE_NS;
    this.#notReadyUntilNs = 0;
  }
}
