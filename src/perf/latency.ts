// Latency: round trips of one message each, or atomics that are waited for, one after the other.

import { monotonicNs } from '../native/index.ts';
import { completionOpcodes, type SendBatch } from '../providers/index.ts';
import type { Pace } from './pace.ts';
import { ReceiveRefill, requestRows } from './rows.ts';
import type { PerfSetup } from './setup.ts';

/**
 * What shows that the answer has arrived: the last byte of the target memory, a receive, or the
 * completion of the request.
 */
type Answer = 'memory' | 'receive' | 'completion';

const maxSamples = 1 << 22;
const warmUps = 1000;
/**
 * Loads of the memory between two polls. Soft devices are driven: they move bytes inside of poll.
 */
const loadsPerPoll = 64;
const pollsPerCheck = 64;
const tripsPerCheck = 64;

export interface LatencyFigures {
  readonly iterations: number;
  /** Half a round trip each; for atomics the whole one. */
  readonly samplesNs: Float64Array;
}

export class RoundTrips implements Disposable {
  readonly #setup: PerfSetup;
  readonly #pace: Pace;
  readonly #answer: Answer;
  readonly #undo = new DisposableStack();
  readonly #quiet: SendBatch;
  readonly #signaled: SendBatch;
  readonly #refill: ReceiveRefill;
  readonly #sent: Uint8Array;
  readonly #arrived: Uint8Array;
  readonly #last: number;
  readonly #period: number;
  readonly #samples: Float64Array;
  #unsignaled = 0;
  #inFlight = 0;
  #posts = 0;
  #answers = 0;
  /** Answers that have arrived. */
  #trips = 0;
  #measured = 0;
  #isWaiting = false;
  #startNs = 0;

  constructor(setup: PerfSetup, pace: Pace, samples: number) {
    const { test, txDepth, sizeBytes } = setup.parameters;
    this.#setup = setup;
    this.#pace = pace;
    this.#answer = test === 'write-lat' ? 'memory' : test === 'send-lat' ? 'receive' : 'completion';
    this.#period = this.#answer === 'completion' ? 1 : Math.max(1, Math.min(32, txDepth >> 1));
    this.#signaled = this.#undo.use(requestRows(setup, 0, 1));
    this.#quiet = this.#undo.use(requestRows(setup, 0, 1, false));
    this.#refill = this.#undo.use(new ReceiveRefill(setup, setup.qps[0]));
    this.#sent = setup.source.bytes;
    this.#arrived = setup.target.bytes;
    this.#last = sizeBytes - 1;
    this.#samples = new Float64Array(Math.min(samples, maxSamples));
  }

  /**
   * The client: sends, waits and records how long it took. True when done, false when a pause is
   * due.
   */
  ask(trips: number, untilNs: number, isMeasured: boolean): boolean {
    // A pause without a message in flight is no latency.
    if (!this.#isWaiting) this.#startNs = monotonicNs();
    while (this.#trips < trips) {
      if (!this.#isWaiting) this.#post();
      this.#isWaiting = true;
      if (!this.#awaitAnswer()) return false;
      this.#isWaiting = false;
      const nowNs = monotonicNs();
      if (isMeasured) this.#samples[this.#measured++ % this.#samples.length] = nowNs - this.#startNs;
      this.#startNs = nowNs;
      if (nowNs > untilNs) return true;
      if (this.#trips % tripsPerCheck === 0 && this.#pace.isDue(this.#trips)) return this.#trips === trips;
    }
    return true;
  }

  /** The server: waits and answers until a pause is due. */
  answer(): void {
    while (this.#awaitAnswer()) {
      this.#post();
      if (this.#trips % tripsPerCheck === 0 && this.#pace.isDue(this.#trips)) return;
    }
  }

  get trips(): number {
    return this.#trips;
  }

  /** The samples since the last call, valid until the next `ask`. */
  takeFigures(): LatencyFigures {
    const iterations = this.#measured;
    const samplesNs = this.#samples.subarray(0, Math.min(iterations, this.#samples.length));
    if (this.#answer !== 'completion') for (let index = 0; index < samplesNs.length; index++) samplesNs[index] /= 2;
    this.#measured = 0;
    return { iterations, samplesNs };
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }

  /** True when the next answer has arrived, false when a pause is due. */
  #awaitAnswer(): boolean {
    const expected = mark(this.#trips + 1);
    for (let polls = 1; ; polls++) {
      if (this.#answer === 'memory') {
        for (let load = 0; load < loadsPerPoll; load++) {
          // Partner: the peer's WRITE, whose bytes a device stores in order of addresses.
          if (Atomics.load(this.#arrived, this.#last) !== expected) continue;
          this.#trips++;
          return true;
        }
      }
      this.#poll();
      if (this.#answer !== 'memory' && this.#answers > this.#trips) {
        this.#trips++;
        return true;
      }
      if (polls % pollsPerCheck === 0 && this.#pace.isDue(this.#trips)) return false;
    }
  }

  #post(): void {
    const qp = this.#setup.qps[0];
    while (this.#inFlight >= this.#setup.parameters.txDepth) this.#poll();
    this.#inFlight++;
    this.#posts++;
    if (this.#answer === 'memory') this.#sent[this.#last] = mark(this.#posts);
    if (++this.#unsignaled < this.#period) {
      qp.postSend(this.#quiet);
      return;
    }
    this.#unsignaled = 0;
    qp.postSend(this.#signaled);
  }

  #poll(): void {
    const { cq, completions, qps } = this.#setup;
    const count = cq.poll(completions);
    for (let row = 0; row < count; row++) {
      qps[0].throwIfFailed(completions, row);
      if (completions.opcode(row) === completionOpcodes.receive) {
        this.#answers++;
        this.#refill.useOne();
      } else {
        if (this.#answer === 'completion') this.#answers++;
        this.#inFlight -= this.#period;
      }
    }
  }
}

/** The last byte of the n-th message; never 0, which the memory has at the start. */
function mark(message: number): number {
  return (message % 255) + 1;
}

export async function measureLatency(setup: PerfSetup, pace: Pace): Promise<LatencyFigures> {
  const { iterations, durationS } = setup.parameters;
  using trips = new RoundTrips(setup, pace, durationS > 0 ? maxSamples : iterations);
  const warm = Math.min(warmUps, iterations);
  while (!trips.ask(warm, Number.MAX_VALUE, false)) await pace.pause();
  const untilNs = durationS > 0 ? monotonicNs() + durationS * 1e9 : Number.MAX_VALUE;
  const goal = durationS > 0 ? Number.MAX_SAFE_INTEGER : warm + iterations;
  while (!trips.ask(goal, untilNs, true)) await pace.pause();
  return trips.takeFigures();
}

/** Answers until `isOver`; resolves to the number of round trips. */
export async function answerRoundTrips(setup: PerfSetup, pace: Pace, isOver: () => boolean): Promise<number> {
  using trips = new RoundTrips(setup, pace, 0);
  while (!isOver()) {
    trips.answer();
    await pace.pause();
  }
  return trips.trips;
}
