// DMA buffers: memory of this node that others reach by its id, and what this node knows of theirs.

import { UsageError } from '../errors.ts';
import type { Mr } from '../verbs/index.ts';
import type { BufferOffer } from './protocol.ts';
import { Uses } from './uses.ts';

/** A buffer of this node or of another one. */
export interface DmaBuffer {
  readonly id: number;
  readonly name: string | undefined;
  /** Of the node that allocated it. */
  readonly nodeId: number;
  readonly sizeBytes: number;
  readonly isFreed: boolean;
}

export class LocalBuffer implements DmaBuffer, AsyncDisposable {
  readonly id: number;
  readonly name: string | undefined;
  readonly nodeId: number;
  readonly sizeBytes: number;
  readonly mr: Mr;
  readonly uses = new Uses();
  readonly #free: (buffer: LocalBuffer) => Promise<void>;
  #freeing: Promise<void> | undefined;

  constructor(
    ids: { readonly id: number; readonly name: string | undefined; readonly nodeId: number },
    mr: Mr,
    free: (buffer: LocalBuffer) => Promise<void>,
  ) {
    this.id = ids.id;
    this.name = ids.name;
    this.nodeId = ids.nodeId;
    this.mr = mr;
    this.sizeBytes = mr.sizeBytes;
    this.#free = free;
  }

  /** Its memory; empty once freed. */
  get bytes(): Uint8Array {
    return this.mr.bytes;
  }

  /** Whether it is freed, or being freed: no further transfer may use it. */
  get isFreed(): boolean {
    return this.#freeing !== undefined || this.mr.isClosed;
  }

  /**
   * From now on no transfer may use it, here or elsewhere; those that were started end first.
   * Resolves when its memory is gone. A node that does not give it back in time is disconnected.
   * Freeing twice is harmless.
   */
  free(): Promise<void> {
    this.#freeing ??= this.#free(this);
    return this.#freeing;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.free();
  }
}

/** A buffer of another node, while that node has it and is connected. */
export class RemoteBuffer implements DmaBuffer {
  readonly id: number;
  readonly name: string | undefined;
  readonly nodeId: number;
  readonly sizeBytes: number;
  readonly address: number;
  readonly rkey: number;
  readonly uses = new Uses();
  isFreed = false;

  constructor(nodeId: number, { id, name, region }: BufferOffer) {
    this.id = id;
    this.name = name;
    this.nodeId = nodeId;
    this.sizeBytes = region.sizeBytes;
    this.address = region.address;
    this.rkey = region.rkey;
  }
}

/** Throws unless a transfer may touch this range of the buffer. */
export function checkRange(attempt: string, buffer: DmaBuffer, offset: number, sizeBytes: number): void {
  if (buffer.isFreed) throw new UsageError(`${attempt}: buffer ${buffer.id} is freed, or its node is gone`);
  const isInside =
    Number.isSafeInteger(offset) &&
    offset >= 0 &&
    sizeBytes <= buffer.sizeBytes &&
    offset <= buffer.sizeBytes - sizeBytes;
  if (isInside) return;
  throw new UsageError(
    `${attempt}: ${sizeBytes} bytes at ${offset} of buffer ${buffer.id}, which has ${buffer.sizeBytes}`,
  );
}
