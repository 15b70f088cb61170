// Bandwidth: the client keeps every send queue full; the server of a send test keeps receives
// posted.

import { MillraceError } from '../errors.ts';
import { monotonicNs } from '../native/index.ts';
import { completionOpcodes, type SendBatch } from '../providers/index.ts';
import type { Pace } from './pace.ts';
import { ReceiveRefill, requestRows } from './rows.ts';
import type { PerfSetup } from './setup.ts';

export interface BandwidthFigures {
  readonly iterations: number;
  readonly elapsedNs: number;
  readonly averageBytesPerS: number;
  /** Of the fastest interval of at least 1 ms. */
  readonly peakBytesPerS: number;
}

const maxBatch = 64;
const intervalNs = 1e6;
const turnsPerCheck = 64;

class Sender implements Disposable {
  readonly #setup: PerfSetup;
  readonly #pace: Pace;
  readonly #undo = new DisposableStack();
  readonly #batches: readonly SendBatch[];
  readonly #batchSize: number;
  readonly #inFlight: Uint32Array;
  readonly #untilNs: number;
  #goal: number;
  #posted = 0;
  #done = 0;
  #intervalDone = 0;
  #intervalStartNs = monotonicNs();
  #bestPerNs = 0;
  readonly startNs = this.#intervalStartNs;

  constructor(setup: PerfSetup, pace: Pace) {
    const { txDepth, iterations, durationS } = setup.parameters;
    this.#setup = setup;
    this.#pace = pace;
    this.#goal = durationS > 0 ? Number.MAX_SAFE_INTEGER : iterations;
    this.#untilNs = durationS > 0 ? this.startNs + durationS * 1e9 : Number.MAX_VALUE;
    // Two batches fit into the send queue, so that one is in flight while the other completes.
    this.#batchSize = Math.min(maxBatch, Math.max(1, txDepth >> 1), this.#goal);
    this.#batches = setup.qps.map((_, index) => this.#undo.use(requestRows(setup, index, this.#batchSize)));
    this.#inFlight = new Uint32Array(setup.qps.length);
  }

  /** Runs until everything is done (true) or a pause is due (false). */
  run(): boolean {
    const { cq, completions } = this.#setup;
    for (let turn = 1; this.#done < this.#goal; turn++) {
      this.#post();
      const count = cq.poll(completions);
      if (count > 0) this.#reap(count);
      if (turn % turnsPerCheck !== 0) continue;
      if (this.#posted < this.#goal && monotonicNs() > this.#untilNs) this.#goal = this.#posted;
      if (this.#done < this.#goal && this.#pace.isDue(this.#done)) return false;
    }
    return true;
  }

  figures(): BandwidthFigures {
    const { sizeBytes } = this.#setup.parameters;
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
    const { qps, parameters } = this.#setup;
    const size = this.#batchSize;
    for (let index = 0; index < qps.length; index++) {
      while (this.#posted + size <= this.#goal && this.#inFlight[index] + size <= parameters.txDepth) {
        this.#postBatch(index, this.#batches[index]);
      }
    }
    // The rest is less than a batch, and posted once.
    const rest = this.#goal - this.#posted;
    if (rest > 0 && rest < size && this.#inFlight[0] + rest <= parameters.txDepth) this.#postRest(rest);
  }

  #postBatch(index: number, batch: SendBatch): void {
    const taken = this.#setup.qps[index].postSend(batch);
    if (taken !== batch.count)
      throw new MillraceError(
        'MILLRACE_ERR_FAILED',
        'perf: post a batch: the send queue is full though not all of its requests are in flight',
      );
    this.#posted += taken;
    this.#inFlight[index] += taken;
  }

  #postRest(count: number): void {
    using batch = requestRows(this.#setup, 0, count);
    this.#postBatch(0, batch);
  }

  #reap(count: number): void {
    const { completions, qps } = this.#setup;
    for (let row = 0; row < count; row++) {
      const index = qpIndex(this.#setup, completions.qpNumber(row));
      qps[index].throwIfFailed(completions, row);
      const requests = completions.wrId(row);
      this.#inFlight[index] -= requests;
      this.#done += requests;
    }
    const nowNs = monotonicNs();
    const tookNs = nowNs - this.#intervalStartNs;
    if (tookNs < intervalNs) return;
    this.#bestPerNs = Math.max(this.#bestPerNs, (this.#done - this.#intervalDone) / tookNs);
    this.#intervalDone = this.#done;
    this.#intervalStartNs = nowNs;
  }
}

function qpIndex({ qps }: PerfSetup, number: number): number {
  for (let index = 0; index < qps.length; index++) if (qps[index].number === number) return index;
  return 0;
}

export async function measureBandwidth(setup: PerfSetup, pace: Pace): Promise<BandwidthFigures> {
  await warmUp(setup, pace);
  using sender = new Sender(setup, pace);
  while (!sender.run()) await pace.pause();
  return sender.figures();
}

/**
 * Sends one request on each queue pair, unmeasured: the first resolves addresses and maps memory.
 */
async function warmUp(setup: PerfSetup, pace: Pace): Promise<void> {
  const { cq, completions, qps } = setup;
  for (const [index, qp] of qps.entries()) {
    using batch = requestRows(setup, index, 1);
    qp.postSend(batch);
    while (cq.poll(completions) === 0) if (pace.isDue(0)) await pace.pause();
    qp.throwIfFailed(completions, 0);
  }
}

/** Receives messages until `isOver`; resolves to how many arrived. */
export async function receiveMessages(setup: PerfSetup, pace: Pace, isOver: () => boolean): Promise<number> {
  const { cq, completions, qps } = setup;
  using undo = new DisposableStack();
  const refills = qps.map((qp) => undo.use(new ReceiveRefill(setup, qp)));
  let received = 0;
  const run = (): void => {
    for (let turn = 1; turn % turnsPerCheck !== 0 || !pace.isDue(received); turn++) {
      const count = cq.poll(completions);
      for (let row = 0; row < count; row++) {
        const index = qpIndex(setup, completions.qpNumber(row));
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
