// Bandwidth: the client keeps every queue pair full; the server of a send test keeps receives posted.

import { MillraceError } from '../errors.ts';
import { monotonicNs } from '../native/index.ts';
import { completionOpcodes, type SendBatch } from '../providers/index.ts';
import type { Pace } from './pace.ts';
import { ReceiveRefill, requestRows } from './rows.ts';
import type { Session } from './session.ts';

export interface BandwidthFigures {
  readonly iterations: number;
  readonly elapsedNs: number;
  readonly averageBytesPerS: number;
  /** The best stretch of at least a ms. */
  readonly peakBytesPerS: number;
}

const maxBatch = 64;
const stretchNs = 1e6;
const turnsPerLook = 64;

class Sender implements Disposable {
  readonly #session: Session;
  readonly #pace: Pace;
  readonly #undo = new DisposableStack();
  readonly #batches: readonly SendBatch[];
  readonly #batchSize: number;
  readonly #inFlight: Uint32Array;
  readonly #untilNs: number;
  #goal: number;
  #posted = 0;
  #done = 0;
  #stretchDone = 0;
  #stretchNs = monotonicNs();
  #bestPerNs = 0;
  readonly startNs = this.#stretchNs;

  constructor(session: Session, pace: Pace) {
    const { txDepth, iterations, durationS } = session.parameters;
    this.#session = session;
    this.#pace = pace;
    this.#goal = durationS > 0 ? Number.MAX_SAFE_INTEGER : iterations;
    this.#untilNs = durationS > 0 ? this.startNs + durationS * 1e9 : Number.MAX_VALUE;
    // Two batches fit the queue, so that one is under way while the other is reaped.
    this.#batchSize = Math.min(maxBatch, Math.max(1, txDepth >> 1), this.#goal);
    this.#batches = session.qps.map((_, index) => this.#undo.use(requestRows(session, index, this.#batchSize)));
    this.#inFlight = new Uint32Array(session.qps.length);
  }

  /** Runs until it is done (true) or a pause is due (false). */
  run(): boolean {
    const { cq, completions } = this.#session;
    for (let turn = 1; this.#done < this.#goal; turn++) {
      this.#post();
      const count = cq.poll(completions);
      if (count > 0) this.#reap(count);
      if (turn % turnsPerLook !== 0) continue;
      if (this.#posted < this.#goal && monotonicNs() > this.#untilNs) this.#goal = this.#posted;
      if (this.#done < this.#goal && this.#pace.isDue(this.#done)) return false;
    }
    return true;
  }

  figures(): BandwidthFigures {
    const { sizeBytes } = this.#session.parameters;
    const elapsedNs = monotonicNs() - this.startNs;
    const averagePerNs = this.#done / elapsedNs;
    const peakPerNs = Math.max(this.#bestPerNs, averagePerNs);
    const toBytesPerS = sizeBytes * 1e9;
    return {
      iterations: this.#done,
      elapsedNs,
      averageBytesPerS: averagePerNs * toBytesPerS,
      peakBytesPerS: peakPerNs * toBytesPerS,
    };
  }

  [Symbol.dispose](): void {
    this.#undo.dispose();
  }

  #post(): void {
    const { qps, parameters } = this.#session;
    const size = this.#batchSize;
    for (let index = 0; index < qps.length; index++) {
      while (this.#posted + size <= this.#goal && this.#inFlight[index] + size <= parameters.txDepth) {
        this.#postBatch(index, this.#batches[index]);
      }
    }
    // What is left over is less than a batch, and posted once.
    const rest = this.#goal - this.#posted;
    if (rest > 0 && rest < size && this.#inFlight[0] + rest <= parameters.txDepth) this.#postRest(rest);
  }

  #postBatch(index: number, batch: SendBatch): void {
    const taken = this.#session.qps[index].postSend(batch);
    if (taken !== batch.count) throw new MillraceError('MILLRACE_ERR_FAILED', 'perf: the send queue is full too early');
    this.#posted += taken;
    this.#inFlight[index] += taken;
  }

  #postRest(count: number): void {
    using batch = requestRows(this.#session, 0, count);
    this.#postBatch(0, batch);
  }

  #reap(count: number): void {
    const { completions, qps } = this.#session;
    for (let row = 0; row < count; row++) {
      const index = qpIndex(this.#session, completions.qpNumber(row));
      qps[index].throwIfFailed(completions, row);
      const requests = completions.wrId(row);
      this.#inFlight[index] -= requests;
      this.#done += requests;
    }
    const nowNs = monotonicNs();
    const tookNs = nowNs - this.#stretchNs;
    if (tookNs < stretchNs) return;
    this.#bestPerNs = Math.max(this.#bestPerNs, (this.#done - this.#stretchDone) / tookNs);
    this.#stretchDone = this.#done;
    this.#stretchNs = nowNs;
  }
}

function qpIndex({ qps }: Session, number: number): number {
  for (let index = 0; index < qps.length; index++) if (qps[index].number === number) return index;
  return 0;
}

export async function measureBandwidth(session: Session, pace: Pace): Promise<BandwidthFigures> {
  await warmUp(session, pace);
  using sender = new Sender(session, pace);
  while (!sender.run()) await pace.pause();
  return sender.figures();
}

/** One request a queue pair, unmeasured: the first finds the way and maps memory. */
async function warmUp(session: Session, pace: Pace): Promise<void> {
  const { cq, completions, qps } = session;
  for (const [index, qp] of qps.entries()) {
    using batch = requestRows(session, index, 1);
    qp.postSend(batch);
    while (cq.poll(completions) === 0) if (pace.isDue(0)) await pace.pause();
    qp.throwIfFailed(completions, 0);
  }
}

/** Takes what a sender sends until `isOver`; resolves to how many messages came. */
export async function receiveMessages(session: Session, pace: Pace, isOver: () => boolean): Promise<number> {
  const { cq, completions, qps } = session;
  using undo = new DisposableStack();
  const refills = qps.map((qp) => undo.use(new ReceiveRefill(session, qp)));
  let received = 0;
  const run = (): void => {
    for (let turn = 1; turn % turnsPerLook !== 0 || !pace.isDue(received); turn++) {
      const count = cq.poll(completions);
      for (let row = 0; row < count; row++) {
        const index = qpIndex(session, completions.qpNumber(row));
        qps[index].throwIfFailed(completions, row);
        if (completions.opcode(row) !== completionOpcodes.receive) continue;
        received++;
        refills[index].useOne();
      }
    }
  };
  while (!isOver()) {
    run();
    await pace.pause();
  }
  return received;
}
