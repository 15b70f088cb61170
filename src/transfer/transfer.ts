// One transfer, and the table that finds it by its id until some time after its end.

import type { LocalBuffer, RemoteBuffer } from './buffer.ts';
import type { TransferError } from './transfer-error.ts';

/** `queued`: not yet given to the device. */
export type TransferState = 'queued' | 'active' | 'done' | 'failed';

export type OnTransfer = (transfer: Transfer) => void;

export interface TransferParts {
  readonly id: number;
  /** `write` goes from this node to another, `read` the other way, `copy` stays here. */
  readonly direction: 'write' | 'read' | 'copy';
  readonly local: LocalBuffer;
  readonly localOffset: number;
  readonly remote: LocalBuffer | RemoteBuffer;
  readonly remoteOffset: number;
  readonly sizeBytes: number;
  readonly onEnd: OnTransfer | undefined;
}

export class Transfer implements TransferParts {
  readonly id: number;
  readonly direction: 'write' | 'read' | 'copy';
  readonly local: LocalBuffer;
  readonly localOffset: number;
  readonly remote: LocalBuffer | RemoteBuffer;
  readonly remoteOffset: number;
  readonly sizeBytes: number;
  readonly onEnd: OnTransfer | undefined;
  state: TransferState = 'queued';
  error: TransferError | undefined;
  #ended: PromiseWithResolvers<void> | undefined;

  constructor(parts: TransferParts) {
    this.id = parts.id;
    this.direction = parts.direction;
    this.local = parts.local;
    this.localOffset = parts.localOffset;
    this.remote = parts.remote;
    this.remoteOffset = parts.remoteOffset;
    this.sizeBytes = parts.sizeBytes;
    this.onEnd = parts.onEnd;
    this.local.uses.add();
    this.remote.uses.add();
  }

  get hasEnded(): boolean {
    return this.state === 'done' || this.state === 'failed';
  }

  /** It has a callback or a promise, so nobody polls for its end. */
  get isAwaited(): boolean {
    return this.onEnd !== undefined || this.#ended !== undefined;
  }

  /** Rejects with a TransferError when it fails. */
  ended(): Promise<void> {
    if (this.state === 'done') return Promise.resolve();
    if (this.error !== undefined) return Promise.reject(this.error);
    this.#ended ??= Promise.withResolvers();
    return this.#ended.promise;
  }

  /** Releases the buffers first, so that the callback may free them at once. */
  end(error?: TransferError): void {
    this.state = error === undefined ? 'done' : 'failed';
    this.error = error;
    this.local.uses.release();
    this.remote.uses.release();
    if (error === undefined) this.#ended?.resolve();
    else this.#ended?.reject(error);
    if (this.onEnd !== undefined) call(this.onEnd, this);
  }
}

/** What a callback throws becomes an uncaught exception of its own: the other transfers go on. */
function call(onEnd: OnTransfer, transfer: Transfer): void {
  try {
    onEnd(transfer);
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}

/** So many transfers that have ended can still be found; older ones are forgotten. */
export const REMEMBERED_TRANSFERS = 4096;

export class TransferTable {
  readonly #transfers = new Map<number, Transfer>();
  /** Ids of transfers that have ended, in a ring, the oldest overwritten. */
  readonly #over = new Float64Array(REMEMBERED_TRANSFERS);
  #overCount = 0;

  add(transfer: Transfer): void {
    this.#transfers.set(transfer.id, transfer);
  }

  find(id: number): Transfer | undefined {
    return this.#transfers.get(id);
  }

  /** Keeps a transfer that has ended, in place of the oldest one. */
  remember(transfer: Transfer): void {
    const slot = this.#overCount % REMEMBERED_TRANSFERS;
    if (this.#overCount >= REMEMBERED_TRANSFERS) this.#transfers.delete(this.#over[slot]);
    this.#over[slot] = transfer.id;
    this.#overCount++;
  }
}
