// One pair of QPs on the `shm` wire: two rings for frames, a unix socket that passes descriptors
// and tells when the peer ends, and the peer's regions mapped here.
//
// A WRITE, READ or atomic on a mapped region is a copy or an instruction on the peer's memory, and
// takes none of the peer's time. The peer hands a region's descriptor out only after the same
// checks as for a frame, and only if the region is all of its memory. It revokes by counting up an
// epoch in shared memory: regions that were mapped before must be asked for again. A peer that
// keeps a mapping in spite of that keeps memory that its owner has given up; both run under the
// same user, so neither can do to the other what it could not do anyway.

import { constants } from 'node:fs';
import { MillraceError } from '../../errors.ts';
import {
  AGAIN,
  compareSwap64,
  copyMemory,
  EventFd,
  Fd,
  fetchAdd64,
  high64,
  loadAcquire,
  low64,
  SharedMemory,
  type Socket,
  storeRelease,
} from '../../native/index.ts';
import { access, type RemoteWindow, read64, sendOpcodes, sendRow } from '../../verbs/index.ts';
import type { DirectAccess, LinkedQp } from './linked-qp.ts';
import { type Pieces, storeHalves } from './pieces.ts';
import type { RegionTable } from './region.ts';
import { decodeMessage, encodeMessage, MESSAGE_BYTES, type ShmMessage } from './shm-message.ts';
import { EPOCH_WORD, RingReader, RingWriter } from './shm-ring.ts';
import type { ByteStream } from './stream.ts';

export interface ShmParts {
  readonly socket: Socket;
  readonly outgoing: SharedMemory;
  readonly incoming: SharedMemory;
  /** Wakes this side. */
  readonly event: EventFd;
  /** Wakes the peer. */
  readonly peerEvent: EventFd;
}

/** A region of the peer, mapped here. */
interface Mapping {
  readonly memory: SharedMemory;
  /** The peer's doorbell. */
  readonly doorbell: Fd;
  readonly access: number;
  readonly address: number;
}

/** A key that was asked for: the epoch in which, and the callbacks that wait for the answer. */
interface Asked {
  readonly epoch: number;
  readonly waiting: ((mapping: Mapping | undefined) => void)[];
}

const writing = access.remoteWrite | access.remoteAtomic;

export class ShmLink implements ByteStream, DirectAccess {
  readonly #parts: ShmParts;
  readonly #writer: RingWriter;
  readonly #reader: RingReader;
  readonly #outWords: Int32Array;
  readonly #inWords: Int32Array;
  readonly #mappings = new Map<number, Mapping>();
  /** The last one used, and its key: requests tend to name the same region again. */
  #lastMapping: Mapping | undefined;
  #lastRkey = 0;
  /** Keys that were asked for and not answered; keys that were refused in this epoch. */
  readonly #asked = new Map<number, Asked>();
  readonly #refused = new Set<number>();
  readonly #onClose: () => void;
  #epoch: number;
  #doorbell: EventFd | undefined;
  #isPeerGone = false;
  #isClosed = false;

  constructor(parts: ShmParts, onClose: () => void) {
    this.#parts = parts;
    this.#onClose = onClose;
    this.#writer = new RingWriter(parts.outgoing, parts.peerEvent);
    this.#reader = new RingReader(parts.incoming, parts.peerEvent);
    this.#outWords = new Int32Array(parts.outgoing.buffer, 0, EPOCH_WORD + 1);
    this.#inWords = new Int32Array(parts.incoming.buffer, 0, EPOCH_WORD + 1);
    // Partner: `revoked` at the peer.
    this.#epoch = loadAcquire(this.#inWords, EPOCH_WORD);
  }

  get mayReceive(): boolean {
    return !this.#reader.isEmpty;
  }

  send(pieces: Pieces, skip: number): number {
    if (this.#isPeerGone) throw new MillraceError('MILLRACE_ERR_FAILED', 'the peer is gone');
    return this.#writer.write(pieces, skip);
  }

  receive(memory: SharedMemory, offset: number, length: number): number {
    const got = this.#reader.read(memory, offset, length);
    // What the peer wrote before it ended is read first.
    return got === AGAIN && this.#isPeerGone ? 0 : got;
  }

  get waitingBytes(): number {
    return this.#reader.waitingBytes;
  }

  flush(): void {
    this.#writer.flush();
  }

  sleep(): boolean {
    return this.#isClosed || this.#reader.sleep();
  }

  /**
   * Some key opens less than before: the peer must ask again. Partners: the loads in `execute`,
   * `isMapped` and `#isCurrent`.
   */
  revoked(): void {
    if (this.#isClosed) return;
    storeRelease(this.#outWords, EPOCH_WORD, (loadAcquire(this.#outWords, EPOCH_WORD) + 1) | 0);
  }

  execute(words: Uint32Array, row: number, local: Pieces): boolean {
    // Partner: `revoked` at the peer.
    if (loadAcquire(this.#inWords, EPOCH_WORD) !== this.#epoch) this.#forgetMappings();
    const rkey = words[row + sendRow.rkey];
    if (this.#lastMapping === undefined || this.#lastRkey !== rkey) {
      this.#lastMapping = this.#mappings.get(rkey);
      this.#lastRkey = rkey;
      if (this.#lastMapping === undefined) {
        this.#ask(rkey);
        return false;
      }
    }
    const mapping = this.#lastMapping;
    const opcode = words[row + sendRow.opcode];
    const at = read64(words, row + sendRow.remoteAddress) - mapping.address;
    // A range that does not fit goes as a frame, so that the peer refuses it.
    if (at < 0 || at + local.totalBytes > mapping.memory.sizeBytes) return false;
    if (opcode === sendOpcodes.write) return this.#write(mapping, at, local);
    if (opcode === sendOpcodes.read) return this.#read(mapping, at, local);
    return this.#atomic(mapping, at, words, row, local);
  }

  isMapped(rkey: number): boolean {
    return this.#mappings.has(rkey) && loadAcquire(this.#inWords, EPOCH_WORD) === this.#epoch;
  }

  #write(mapping: Mapping, at: number, local: Pieces): boolean {
    if ((mapping.access & access.remoteWrite) === 0) return false;
    let to = at;
    for (let piece = 0; piece < local.count; piece++) {
      copyMemory(mapping.memory, to, local.memories[piece], local.offsets[piece], local.lengths[piece]);
      to += local.lengths[piece];
    }
    return true;
  }

  #read(mapping: Mapping, at: number, local: Pieces): boolean {
    if ((mapping.access & access.remoteRead) === 0) return false;
    let from = at;
    for (let piece = 0; piece < local.count; piece++) {
      copyMemory(local.memories[piece], local.offsets[piece], mapping.memory, from, local.lengths[piece]);
      from += local.lengths[piece];
    }
    return true;
  }

  #atomic(mapping: Mapping, at: number, words: Uint32Array, row: number, local: Pieces): boolean {
    if ((mapping.access & access.remoteAtomic) === 0 || at % 8 !== 0) return false;
    const aLow = words[row + sendRow.compareAdd];
    const aHigh = words[row + sendRow.compareAdd + 1];
    const bLow = words[row + sendRow.swap];
    const bHigh = words[row + sendRow.swap + 1];
    if (words[row + sendRow.opcode] === sendOpcodes.fetchAdd) fetchAdd64(mapping.memory, at, aLow, aHigh);
    else compareSwap64(mapping.memory, at, aLow, aHigh, bLow, bHigh);
    storeHalves(local, low64(), high64());
    return true;
  }

  async map(rkey: number, address: number, sizeBytes: number): Promise<RemoteWindow> {
    const mapping = await this.#find(rkey);
    const offset = mapping === undefined ? -1 : address - mapping.address;
    if (mapping === undefined || offset < 0 || offset + sizeBytes > mapping.memory.sizeBytes) {
      throw new MillraceError(
        'MILLRACE_ERR_PERMISSION',
        `map ${sizeBytes} bytes of the peer: its key does not open them`,
      );
    }
    if ((mapping.access & access.remoteWrite) === 0) {
      throw new MillraceError(
        'MILLRACE_ERR_PERMISSION',
        `map ${sizeBytes} bytes of the peer: its key does not allow writing`,
      );
    }
    // Both are duplicates, which the window closes.
    using undo = new DisposableStack();
    const memory = undo.use(SharedMemory.open(mapping.memory.duplicateFd()));
    const doorbell = EventFd.adopt(mapping.doorbell.duplicate().release());
    undo.move();
    const epoch = this.#epoch;
    return new Window(memory, doorbell, offset, sizeBytes, () => this.#isCurrent(epoch));
  }

  /** Whether nothing was revoked since. Partner: `revoked` at the peer. */
  #isCurrent(epoch: number): boolean {
    return !this.#isClosed && !this.#isPeerGone && loadAcquire(this.#inWords, EPOCH_WORD) === epoch;
  }

  /** Finds a mapping, or asks for it; asks again when a revocation has made the answer stale. */
  async #find(rkey: number): Promise<Mapping | undefined> {
    for (;;) {
      if (this.#isClosed) return undefined;
      if (!this.#isCurrent(this.#epoch)) this.#forgetMappings();
      const epoch = this.#epoch;
      const mapping = this.#mappings.get(rkey) ?? (await this.#wait(rkey));
      if (this.#isPeerGone || this.#isCurrent(epoch)) return mapping;
    }
  }

  #wait(rkey: number): Promise<Mapping | undefined> {
    const { promise, resolve } = Promise.withResolvers<Mapping | undefined>();
    this.#refused.delete(rkey);
    this.#ask(rkey);
    const asked = this.#asked.get(rkey);
    if (asked === undefined) resolve(undefined);
    else asked.waiting.push(resolve);
    return promise;
  }

  #ask(rkey: number): void {
    if (this.#asked.has(rkey) || this.#refused.has(rkey) || this.#isPeerGone) return;
    if (this.#tell({ kind: 'ask', rkey }, [])) this.#asked.set(rkey, { epoch: this.#epoch, waiting: [] });
  }

  #tell(message: ShmMessage, fds: readonly number[]): boolean {
    try {
      // A full socket means that the peer does not read; then requests go as frames.
      return this.#parts.socket.sendFds(encodeMessage(message), fds) === MESSAGE_BYTES;
    } catch {
      // The peer is gone; the socket's own event tells the wire.
      this.#isPeerGone = true;
      return false;
    }
  }

  /** Reads messages from the socket. False when the peer is gone, or on a protocol error. */
  readMessages(qp: LinkedQp, regions: RegionTable): boolean {
    const bytes = new Uint8Array(MESSAGE_BYTES);
    for (;;) {
      const got = this.#parts.socket.receiveFds(bytes);
      if (got === undefined) return true;
      using received = new DisposableStack();
      for (const fd of got.fds) received.use(fd);
      const message = decodeMessage(bytes, got.bytes);
      if (message === undefined) return false;
      if (message.kind === 'ask') this.#answer(message.rkey, qp, regions);
      else this.#answered(message, got.fds[0], got.fds[1]);
    }
  }

  /**
   * Makes the same checks as for a frame. A refusal decides nothing: the request then goes as a
   * frame.
   */
  #answer(rkey: number, qp: LinkedQp, regions: RegionTable): void {
    const isReady = qp.state === 'RTR' || qp.state === 'RTS' || qp.state === 'SQD';
    const allowed = regions.remoteAccess(rkey, qp.pd, qp.number) & qp.access;
    const region = regions.remote(rkey, qp.pd, qp.number, 0);
    if (!isReady || allowed === 0 || region === undefined || !region.isWholeMemory) {
      this.#tell({ kind: 'refuse', rkey }, []);
      return;
    }
    const grant = {
      kind: 'grant',
      rkey,
      access: allowed,
      address: region.address,
      sizeBytes: region.sizeBytes,
    } as const;
    if ((allowed & writing) !== 0) {
      this.#tell(grant, [region.memory.fd, this.doorbellFd]);
      return;
    }
    // Read only, which the kernel enforces.
    using readable = Fd.open(`/proc/self/fd/${region.memory.fd}`, constants.O_RDONLY);
    this.#tell(grant, [readable.fd, this.doorbellFd]);
  }

  #answered(message: Exclude<ShmMessage, { kind: 'ask' }>, fd: Fd | undefined, doorbell: Fd | undefined): void {
    const asked = this.#asked.get(message.rkey);
    if (asked === undefined) return;
    this.#asked.delete(message.rkey);
    // A grant from before a revocation may be the one that was revoked.
    const isCurrent = this.#isCurrent(asked.epoch);
    const isWhole = message.kind === 'grant' && fd !== undefined && doorbell !== undefined;
    const mapping = isCurrent && isWhole ? this.#open(message, fd, doorbell) : undefined;
    if (mapping !== undefined) this.#mappings.set(message.rkey, mapping);
    else if (isCurrent) this.#refused.add(message.rkey);
    for (const resolve of asked.waiting) resolve(mapping);
  }

  #open(grant: { access: number; address: number; sizeBytes: number }, fd: Fd, doorbell: Fd): Mapping | undefined {
    try {
      const readOnly = (grant.access & writing) === 0;
      const memory = SharedMemory.open(fd.duplicate(), { sizeBytes: grant.sizeBytes, readOnly });
      return { memory, doorbell: doorbell.duplicate(), access: grant.access, address: grant.address };
    } catch {
      // The descriptor is not sealed, too small, or no memory: requests go as frames.
      return undefined;
    }
  }

  #forgetMappings(): void {
    this.#epoch = loadAcquire(this.#inWords, EPOCH_WORD);
    for (const { memory, doorbell } of this.#mappings.values()) {
      memory.close();
      doorbell.close();
    }
    this.#mappings.clear();
    this.#lastMapping = undefined;
    this.#refused.clear();
  }

  /** The doorbell that the peer rings; see ProviderQp. */
  get doorbellFd(): number {
    this.#doorbell ??= EventFd.create();
    return this.#doorbell.fd;
  }

  /** The socket tells that the peer is gone. */
  peerGone(): void {
    this.#isPeerGone = true;
  }

  close(): void {
    // First of all, so that the peer reaches nothing from here on.
    this.revoked();
    this.#isClosed = true;
    this.#onClose();
    this.#forgetMappings();
    for (const { waiting } of this.#asked.values()) for (const resolve of waiting) resolve(undefined);
    this.#asked.clear();
    const { socket, outgoing, incoming, event, peerEvent } = this.#parts;
    for (const part of [socket, outgoing, incoming, event, peerEvent]) part.close();
    this.#doorbell?.close();
  }
}

class Window implements RemoteWindow {
  readonly memory: SharedMemory;
  readonly #doorbell: EventFd;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly #isCurrent: () => boolean;

  constructor(memory: SharedMemory, doorbell: EventFd, offset: number, sizeBytes: number, isCurrent: () => boolean) {
    this.memory = memory;
    this.#doorbell = doorbell;
    this.offset = offset;
    this.sizeBytes = sizeBytes;
    this.#isCurrent = isCurrent;
  }

  get isValid(): boolean {
    return !this.memory.isClosed && this.#isCurrent();
  }

  ring(): void {
    if (!this.#doorbell.isClosed) this.#doorbell.signal();
  }

  close(): void {
    this.memory.close();
    this.#doorbell.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
