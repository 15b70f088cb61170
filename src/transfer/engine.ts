// The transfers to and from one node: a queue in front of its QP, and what became of them.

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

/** Given to the device at once; more wait in the queue. */
const MAX_ACTIVE = 128;
const ROWS = 16;
/** After so many polls in a row timers and sockets get a turn. */
const POLLS_PER_TURN = 16;

export interface EngineHooks {
  /** A transfer is over. */
  readonly onEnd: (transfer: Transfer) => void;
  /** The QP is of no use any more. */
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
  /** Of the first in the queue; those before it were posted. */
  #queueStart = 0;
  /** Those whose end somebody waits for, and others who need the transfers to go on. */
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

  /** Makes sure that the end of the transfer is seen without anybody polling. */
  awaitEnd(transfer: Transfer): void {
    if (transfer.hasEnded || this.#isClosed) return;
    this.#awaited.add(transfer);
    this.#run();
  }

  /** Sees transfers through until nobody uses the buffer. */
  async settle(uses: Uses): Promise<void> {
    if (uses.count === 0 || this.#isClosed) return;
    const token = {};
    this.#awaited.add(token);
    this.#run();
    await uses.idle();
    this.#forget(token);
  }

  /** Looks at what the device has done; returns how many transfers are over. Never blocks. */
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
      // A callback may have closed all of it.
      if (this.#isClosed) return count;
    }
    if (broken !== undefined) this.#hooks.onBroken(broken);
    else if (count > 0) this.#post();
    return count;
  }

  /** Everything that is under way fails for this reason. */
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

  /** A device that refuses to take any is of no use to this node any more; who posted is told first. */
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

  /** The queue of the QP had no room for it after all. */
  #takeBack(wrId: number): void {
    const transfer = this.#active.get(wrId);
    this.#active.delete(wrId);
    if (transfer !== undefined) transfer.state = 'queued';
  }

  #forget(token: Transfer | object): void {
    // Who waits for nothing must not keep the process alive.
    if (this.#awaited.delete(token) && this.#awaited.size === 0 && !this.#isClosed) this.#channel.forget(this.#cq);
  }

  #run(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#watch();
  }

  async #watch(): Promise<void> {
    // The caller posts first.
    await Promise.resolve();
    for (let polls = 1; this.#awaited.size > 0 && !this.#isClosed; polls++) {
      if (this.poll() === 0 && !this.#isClosed) {
        const changed = this.#channel.changed(this.#cq);
        // One may have come between the poll and the arming.
        if (this.poll() === 0) await changed;
        else if (!this.#isClosed) this.#channel.forget(this.#cq);
      }
      await (polls % POLLS_PER_TURN === 0 ? nextTurn() : Promise.resolve());
    }
    this.#isRunning = false;
  }
}

/** What a dead peer looks like from here is told as such; all else is the device's word. */
function failureOf(transfer: Transfer, cause: CompletionError): TransferError {
  const isGone = cause.code === 'WR_FLUSH_ERR' || cause.code === 'RETRY_EXC_ERR';
  const message = `transfer ${transfer.id}, ${transfer.direction} of ${transfer.sizeBytes} bytes: ${cause.message}`;
  return new TransferError(isGone ? 'nodeGone' : 'refused', transfer.id, message, { cause });
}
