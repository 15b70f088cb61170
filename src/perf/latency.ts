// Latency: one message goes there and one comes back, or one atomic is waited for, again and again.

import { monotonicNs } from '../native/index.ts';
import { completionOpcodes, type SendBatch } from '../providers/index.ts';
import type { Pace } from './pace.ts';
import { ReceiveRefill, requestRows } from './rows.ts';
import type { Session } from './session.ts';

/** What tells that the answer is there: the last byte of our memory, a receive, or the request's own completion. */
type Answer = 'memory' | 'receive' | 'completion';

const maxSamples = 1 << 22;
const warmUps = 1000;
/** Looks at the memory between two polls. The soft wires move bytes inside of poll. */
const looksPerPoll = 64;
const pollsPerLook = 64;
const tripsPerLook = 64;

export interface LatencyFigures {
  readonly iterations: number;
  /** Of one way; for atomics of the whole way. */
  readonly samplesNs: Float64Array;
}

export class RoundTrips implements Disposable {
  readonly #session: Session;
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
  /** Answers that were waited for. */
  #trips = 0;
  #measured = 0;
  #isWaiting = false;
  #startNs = 0;

  constructor(session: Session, pace: Pace, samples: number) {
    const { test, txDepth, sizeBytes } = session.parameters;
    this.#session = session;
    this.#pace = pace;
    this.#answer = test === 'write-lat' ? 'memory' : test === 'send-lat' ? 'receive' : 'completion';
    this.#period = this.#answer === 'completion' ? 1 : Math.max(1, Math.min(32, txDepth >> 1));
    this.#signaled = this.#undo.use(requestRows(session, 0, 1));
    this.#quiet = this.#undo.use(requestRows(session, 0, 1, false));
    this.#refill = this.#undo.use(new ReceiveRefill(session, session.qps[0]));
    this.#sent = session.source.bytes;
    this.#arrived = session.target.bytes;
    this.#last = sizeBytes - 1;
    this.#samples = new Float64Array(Math.min(samples, maxSamples));
  }

  /** The client: asks, waits, and notes how long it took. True when done, false when a pause is due. */
  ask(trips: number, untilNs: number, isMeasured: boolean): boolean {
    // A pause while nothing was under way is nobody's latency.
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
      if (this.#trips % tripsPerLook === 0 && this.#pace.isDue(this.#trips)) return this.#trips === trips;
    }
    return true;
  }

  /** The server: waits and answers until a pause is due. */
  answer(): void {
    while (this.#awaitAnswer()) {
      this.#post();
      if (this.#trips % tripsPerLook === 0 && this.#pace.isDue(this.#trips)) return;
    }
  }

  get trips(): number {
    return this.#trips;
  }

  /** What was measured since the last call, until the next. */
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

  /** True when the next answer is there, false when a pause is due. */
  #awaitAnswer(): boolean {
    const expected = mark(this.#trips + 1);
    for (let polls = 1; ; polls++) {
      if (this.#answer === 'memory') {
        for (let look = 0; look < looksPerPoll; look++) {
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
      if (polls % pollsPerLook === 0 && this.#pace.isDue(this.#trips)) return false;
    }
  }

  #post(): void {
    const qp = this.#session.qps[0];
    while (this.#inFlight >= this.#session.parameters.txDepth) this.#poll();
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
    const { cq, completions, qps } = this.#session;
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

/** What the n-th message carries in its last byte: never 0, which is there from the start. */
function mark(message: number): number {
  return (message % 255) + 1;
}

export async function measureLatency(session: Session, pace: Pace): Promise<LatencyFigures> {
  const { iterations, durationS } = session.parameters;
  using trips = new RoundTrips(session, pace, durationS > 0 ? maxSamples : iterations);
  const warm = Math.min(warmUps, iterations);
  while (!trips.ask(warm, Number.MAX_VALUE, false)) await pace.pause();
  const untilNs = durationS > 0 ? monotonicNs() + durationS * 1e9 : Number.MAX_VALUE;
  const goal = durationS > 0 ? Number.MAX_SAFE_INTEGER : warm + iterations;
  while (!trips.ask(goal, untilNs, true)) await pace.pause();
  return trips.takeFigures();
}

/** Answers until `isOver`; resolves to how often. */
export async function answerRoundTrips(session: Session, pace: Pace, isOver: () => boolean): Promise<number> {
  using trips = new RoundTrips(session, pace, 0);
  while (!isOver()) {
    trips.answer();
    await pace.pause();
  }
  return trips.trips;
}
