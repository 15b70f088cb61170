// Requests as promises, for programs that do not need the last microsecond. Everything posted is
// signalled.

import { MillraceError, UsageError } from '../errors.ts';
import type { Completion } from './completion.ts';
import { CompletionError } from './completion-error.ts';
import { Dispatcher } from './dispatcher.ts';
import type { RemoteRegion } from './endpoint/index.ts';
import type { Mr } from './mr.ts';
import { VerbsObject } from './object.ts';
import type { Qp } from './qp.ts';
import { RequestQueue } from './request-queue.ts';
import { ReceiveBatch, SendBatch, sendFlags } from './work-request.ts';

export interface SendOptions {
  readonly imm?: number;
  /** Wakes a receiver that asked for solicited events only. */
  readonly solicited?: boolean;
  /** Starts only when all reads and atomics before it are done. */
  readonly fence?: boolean;
}

export interface Received {
  readonly byteLength: number;
  readonly imm?: number;
}

const atomicBytes = 8;

/**
 * The send and receive queue of one QP. A call whose queue is full waits for room. A request that
 * fails rejects with a CompletionError, and so does all that was posted after it, because the QP is
 * in ERR then. Closing rejects what is pending; the device may still touch its memory until the QP
 * is closed.
 *
 * The QP's CQs need a channel and a place for every request of the QPs that share them, and only it
 * may poll them.
 */
export class Requests extends VerbsObject {
  readonly #qp: Qp;
  readonly #sends: RequestQueue<SendBatch>;
  readonly #receives: RequestQueue<ReceiveBatch>;
  readonly #undo = new DisposableStack();
  /** The memory that atomics store the previous values in. */
  #results: Mr | undefined;

  constructor(qp: Qp) {
    if (qp.isClosed) throw new UsageError(`requests on QP ${qp.number}: it is closed`);
    using undo = new DisposableStack();
    const fail = (completion: Completion): Error => new CompletionError(completion, qp);
    const one = { capacity: 1, maxSge: 1 };
    const sends = undo.use(
      new RequestQueue(Dispatcher.of(qp.sendCq), qp.sendRequests, undo.use(new SendBatch(one)), {
        post: (batch) => qp.postSend(batch),
        fail,
      }),
    );
    const receives = undo.use(
      new RequestQueue(Dispatcher.of(qp.receiveCq), qp.receiveRequests, undo.use(new ReceiveBatch(one)), {
        post: (batch) => qp.postReceive(batch),
        fail,
      }),
    );
    super([qp]);
    this.#qp = qp;
    this.#sends = sends;
    this.#receives = receives;
    this.#undo.use(undo.move());
  }

  async send(mr: Mr, offset: number, length: number, options: SendOptions = {}): Promise<void> {
    this.checkOpen();
    checkLocal('send', mr, offset, length);
    const { imm } = options;
    const flags = flagsOf(options);
    await this.#sends.add((batch, wrId) => {
      if (imm === undefined) batch.send(wrId, flags);
      else batch.sendWithImm(wrId, imm, flags);
      if (length > 0) batch.sge(mr.lkey, mr.address + offset, length);
    }, nothing);
  }

  /** With `imm`, the peer needs a receive, which completes when the bytes are there. */
  async write(
    mr: Mr,
    offset: number,
    length: number,
    remote: RemoteRegion,
    remoteOffset: number,
    options: SendOptions = {},
  ): Promise<void> {
    this.checkOpen();
    checkLocal('write', mr, offset, length);
    checkRemote('write', remote, remoteOffset, length);
    const { imm } = options;
    const flags = flagsOf(options);
    const to = remote.address + remoteOffset;
    await this.#sends.add((batch, wrId) => {
      if (imm === undefined) batch.write(wrId, to, remote.rkey, flags);
      else batch.writeWithImm(wrId, to, remote.rkey, imm, flags);
      if (length > 0) batch.sge(mr.lkey, mr.address + offset, length);
    }, nothing);
  }

  async read(mr: Mr, offset: number, length: number, remote: RemoteRegion, remoteOffset: number): Promise<void> {
    this.checkOpen();
    checkLocal('read', mr, offset, length);
    checkRemote('read', remote, remoteOffset, length);
    await this.#sends.add((batch, wrId) => {
      batch.read(wrId, remote.address + remoteOffset, remote.rkey);
      if (length > 0) batch.sge(mr.lkey, mr.address + offset, length);
    }, nothing);
  }

  /** Adds to eight aligned bytes of the peer; resolves to what was there. */
  async fetchAdd(remote: RemoteRegion, remoteOffset: number, add: bigint): Promise<bigint> {
    this.checkOpen();
    checkRemote('fetch and add', remote, remoteOffset, atomicBytes);
    const value = new Uint32Array(BigUint64Array.of(add).buffer);
    return this.#atomic((batch, wrId) =>
      batch.fetchAdd(wrId, remote.address + remoteOffset, remote.rkey, value[0], value[1]),
    );
  }

  /**
   * Stores `swap` in eight aligned bytes of the peer if they are `compare`; resolves to what was
   * there.
   */
  async compareSwap(remote: RemoteRegion, remoteOffset: number, compare: bigint, swap: bigint): Promise<bigint> {
    this.checkOpen();
    checkRemote('compare and swap', remote, remoteOffset, atomicBytes);
    const value = new Uint32Array(BigUint64Array.of(compare, swap).buffer);
    return this.#atomic((batch, wrId) =>
      batch.compareSwap(wrId, remote.address + remoteOffset, remote.rkey, value[0], value[1], value[2], value[3]),
    );
  }

  /**
   * Resolves when a message has arrived in the memory, or a write with an immediate value somewhere
   * else.
   */
  async receive(mr: Mr, offset: number, length: number): Promise<Received> {
    this.checkOpen();
    checkLocal('receive', mr, offset, length);
    return this.#receives.add(
      (batch, wrId) => {
        batch.receive(wrId);
        if (length > 0) batch.sge(mr.lkey, mr.address + offset, length);
      },
      (batch, index) => ({
        byteLength: batch.byteLength(index),
        ...(batch.hasImm(index) && { imm: batch.imm(index) }),
      }),
    );
  }

  protected override release(): void {
    const reason = new MillraceError('MILLRACE_ERR_CLOSED', `the requests of QP ${this.#qp.number} were closed`);
    this.#sends.reject(reason);
    this.#receives.reject(reason);
    this.#undo.dispose();
    this.#results?.close();
  }

  /**
   * The previous value is stored in eight bytes of local memory, of which there are as many as the
   * queue has places.
   */
  async #atomic(fill: (batch: SendBatch, wrId: number) => SendBatch): Promise<bigint> {
    this.#results ??= this.#qp.pd.allocate({ sizeBytes: this.#qp.sendRequests * atomicBytes });
    const { lkey, address, memory } = this.#results;
    return this.#sends.add(
      (batch, wrId, place) => void fill(batch, wrId).sge(lkey, address + place * atomicBytes, atomicBytes),
      (_batch, _index, place) => new BigUint64Array(memory.buffer, place * atomicBytes, 1)[0],
    );
  }
}

const nothing = (): void => {};

function flagsOf({ solicited = false, fence = false }: SendOptions): number {
  return sendFlags.signaled | (solicited ? sendFlags.solicited : 0) | (fence ? sendFlags.fence : 0);
}

function isInside(offset: number, length: number, sizeBytes: number): boolean {
  const areCounts = Number.isSafeInteger(offset) && Number.isSafeInteger(length) && offset >= 0 && length >= 0;
  return areCounts && length <= 0xffff_ffff && offset + length <= sizeBytes;
}

function checkLocal(what: string, mr: Mr, offset: number, length: number): void {
  if (mr.isClosed) throw new UsageError(`${what}: the region is closed`);
  if (isInside(offset, length, mr.sizeBytes)) return;
  throw new UsageError(`${what} ${length} bytes at ${offset}: the region has ${mr.sizeBytes}`);
}

function checkRemote(what: string, remote: RemoteRegion, offset: number, length: number): void {
  if (isInside(offset, length, remote.sizeBytes)) return;
  throw new UsageError(`${what} ${length} bytes at ${offset} of the peer: its region has ${remote.sizeBytes}`);
}
