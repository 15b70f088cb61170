// The transfers to and from one node: a queue in front of its QP, and the completions of what was
// posted.

import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  CompletionBatch,
  type CompletionChannel,
  CompletionError,
  type Cq,
  type Device,
  type Pd,
  type Qp,
  SendBatch,
  statusName,
} from '../verbs/index.ts';
import type { Transfer } from './transfer.ts';
import { TransferError } from './transfer-error.ts';
import type { Uses } from './uses.ts';

/** Transfers that the device has at the same time; more wait in the queue. */
const MAX_ACTIVE = 128;
const ROWS = 16;
/** After so many polls in a row, timers and sockets of this thread get a turn. */
const POLLS_PER_TURN = 16;

export interface EngineHooks {
  /** A transfer is done or has failed. */
  readonly onEnd: (transfer: Transfer) => void;
  /** The QP failed and cannot be used any more. */
  readonly onBroken: (reason: string) => void;
}

export class Engine implements Disposable {
  readonly qp: Qp;
  readonly #cq: Cq;
  readonly #channel: CompletionChannel;
  readonly #hooks: EngineHooks;
  readonly #rows = new SendBatch({ capacity: ROWS, maxSge: 1 });
  readonly #completions = new CompletionBatch(64);
  readonly #depth: number;
  readonly #active = new Map<number, Transfer>();
  #queue: Transfer[] = [];
  /** Index of the first transfer in the queue that was not posted yet. */
  #queueStart = 0;
  /**
   * Transfers whose end a program waits for, and tokens of `settle`: while there are any, the CQ is
   * watched.
   */
  readonly #awaited = new Set<Transfer | object>();
  #lastRequest = 0;
  #isRunning = false;
  #isClosed = false;

  constructor(device: Device, pd: Pd, channel: CompletionChannel, hooks: EngineHooks) {
    const { maxQpRequests, maxCqEntries } = device.attributes;
    using undo = new DisposableStack();
    this.#depth = Math.min(MAX_ACTIVE, maxQpRequests, maxCqEntries);
    this.#cq = undo.use(device.createCq({ entries: this.#depth, channel }));
    this.qp = pd.createQp({ sendCq: this.#cq, sendRequests: this.#depth, receiveRequests: 1, maxSge: 1 });
    undo.move();
    this.#channel = channel;
    this.#hooks = hooks;
  }

  start(transfer: Transfer): void {
    this.#queue.push(transfer);
    if (transfer.isAwaited) this.awaitEnd(transfer);
    this.#post();
  }

  /** Watches the CQ until the transfer ends, so that nobody has to poll. */
  awaitEnd(transfer: Transfer): void {
    if (transfer.hasEnded || this.#isClosed) return;
    this.#awaited.add(transfer);
    this.#run();
  }

  /** Watches the CQ until no transfer uses the buffer. */
  async settle(uses: Uses): Promise<void> {
    if (uses.count === 0 || this.#isClosed) return;
    const token = {};
    this.#awaited.add(token);
    this.#run();
    await uses.idle();
    this.#forget(token);
  }

  /** Polls the CQ once; returns how many transfers have ended. Never blocks. */
  poll(): number {
    if (this.#isClosed) return 0;
    const batch = this.#completions;
    const count = this.#cq.poll(batch);
    let broken: string | undefined;
    for (let index = 0; index < count; index++) {
      const transfer = this.#active.get(batch.wrId(index));
      if (transfer === undefined) continue;
      this.#active.delete(batch.wrId(index));
      if (batch.status(index) === 0) this.#end(transfer);
      else {
        broken ??= `its QP failed with ${statusName(batch.status(index))}`;
        const cause = new CompletionError(batch.toCompletion(index), this.qp);
        this.#end(transfer, failureOf(transfer, cause));
      }
      // A callback may have closed this engine.
      if (this.#isClosed) return count;
    }
    if (broken !== undefined) this.#hooks.onBroken(broken);
    else if (count > 0) this.#post();
    return count;
  }

  /** All transfers that have not ended fail for this reason. */
  close(why = 'the connection to its node was closed'): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    // After this the device touches no buffer any more.
    this.qp.close();
    this.#cq.close();
    this.#rows.close();
    this.#completions.close();
    const rest = [...this.#active.values(), ...this.#queue.slice(this.#queueStart)];
    this.#active.clear();
    this.#queue = [];
    this.#queueStart = 0;
    for (const transfer of rest) {
      this.#end(transfer, new TransferError('nodeGone', transfer.id, `transfer ${transfer.id}: ${why}`));
    }
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #end(transfer: Transfer, error?: TransferError): void {
    this.#hooks.onEnd(transfer);
    this.#forget(transfer);
    transfer.end(error);
  }

  #post(): void {
    while (!this.#isClosed && this.#queueStart < this.#queue.length && this.#active.size < this.#depth) {
      const count = Math.min(ROWS, this.#depth - this.#active.size, this.#queue.length - this.#queueStart);
      this.#rows.clear();
      for (let index = 0; index < count; index++) this.#addRow(this.#queue[this.#queueStart + index]);
      const taken = this.#postRows();
      this.#queueStart += taken;
      for (let index = count; index > taken; index--) this.#takeBack(this.#lastRequest--);
      if (taken === 0) return;
    }
    if (this.#queueStart === this.#queue.length || this.#queueStart > 1024) {
      this.#queue = this.#queue.slice(this.#queueStart);
      this.#queueStart = 0;
    }
  }

  /**
   * When the device refuses the rows, the connection to the node ends, but only after `start` has
   * returned.
   */
  #postRows(): number {
    try {
      return this.qp.postSend(this.#rows);
    } catch (error) {
      queueMicrotask(() => this.#hooks.onBroken(error instanceof Error ? error.message : String(error)));
      return 0;
    }
  }

  #addRow(transfer: Transfer | undefined): void {
    if (transfer === undefined) return;
    const { local, remote, direction } = transfer;
    if (!('rkey' in remote)) return;
    const wrId = ++this.#lastRequest;
    const address = remote.address + transfer.remoteOffset;
    if (direction === 'write') this.#rows.write(wrId, address, remote.rkey);
    else this.#rows.read(wrId, address, remote.rkey);
    this.#rows.sge(local.mr.lkey, local.mr.address + transfer.localOffset, transfer.sizeBytes);
    this.#active.set(wrId, transfer);
    transfer.state = 'active';
  }

  /** The send queue had no room for this row. */
  #takeBack(wrId: number): void {
    const transfer = this.#active.get(wrId);
    this.#active.delete(wrId);
    if (transfer !== undefined) transfer.state = 'queued';
  }

  #forget(token: Transfer | object): void {
    // An armed CQ that nobody waits for must not keep the process alive.
    if (this.#awaited.delete(token) && this.#awaited.size === 0 && !this.#isClosed) this.#channel.forget(this.#cq);
  }

  #run(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#watch();
  }

  async #watch(): Promise<void> {
    // The transfer is posted first, by the function that called this one.
    await Promise.resolve();
    for (let polls = 1; this.#awaited.size > 0 && !this.#isClosed; polls++) {
      if (this.poll() === 0 && !this.#isClosed) {
        const changed = this.#channel.changed(this.#cq);
        // A completion may have come between the poll and the arming.
        if (this.poll() === 0) await changed;
        else if (!this.#isClosed) this.#channel.forget(this.#cq);
      }
      await (polls % POLLS_PER_TURN === 0 ? nextTurn() : Promise.resolve());
    }
    this.#isRunning = false;
  }
}

/**
 * A peer that is dead shows as flushed or retried requests. Any other status is an error of the
 * request.
 */
function failureOf(transfer: Transfer, cause: CompletionError): TransferError {
  const isGone = cause.code === 'WR_FLUSH_ERR' || cause.code === 'RETRY_EXC_ERR';
  const message = `transfer ${transfer.id}, ${transfer.direction} of ${transfer.sizeBytes} bytes: ${cause.message}`;
  return new TransferError(isGone ? 'nodeGone' : 'refused', transfer.id, message, { cause });
}
