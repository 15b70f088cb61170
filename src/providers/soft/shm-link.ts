// One pair of QPs on the `shm` wire: two rings for frames, a unix socket for descriptors and for the news of a death, and
// the peer's regions mapped here.
//
// A WRITE, READ or atomic on a mapped region is a copy or an instruction on the peer's memory, and takes none of the
// peer's time. The peer hands a region's descriptor out only after the same checks as for a frame, and only if the
// region is all of its memory. It takes back by counting up an epoch in shared memory: what was mapped before is
// asked for again. A peer that keeps a mapping in spite of that keeps memory that its owner has given up; both run
// under the same user, so neither can do to the other what it could not do anyway.

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
  /** Wakes us. */
  readonly event: EventFd;
  /** Wakes the peer. */
  readonly peerEvent: EventFd;
}

/** A region of the peer, mapped here. */
interface Mapping {
  readonly memory: SharedMemory;
  /** Of the peer. */
  readonly bell: Fd;
  readonly access: number;
  readonly address: number;
}

/** A key that was asked for, in which epoch, and who waits for the answer. */
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
  /** Keys that were asked for and not answered, with those who wait; keys that were refused in this epoch. */
  readonly #asked = new Map<number, Asked>();
  readonly #refused = new Set<number>();
  readonly #onClose: () => void;
  #epoch: number;
  #bell: EventFd | undefined;
  #isPeerGone = false;
  #isClosed = false;

  constructor(parts: ShmParts, onClose: () => void) {
    this.#parts = parts;
    this.#onClose = onClose;
    this.#writer = new RingWriter(parts.outgoing, parts.peerEvent);
    this.#reader = new RingReader(parts.incoming, parts.peerEvent);
    this.#outWords = new Int32Array(parts.outgoing.buffer, 0, EPOCH_WORD + 1);
    this.#inWords = new Int32Array(parts.incoming.buffer, 0, EPOCH_WORD + 1);
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
    // What the peer wrote before it went is read first.
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

  /** Some key opens less than before: the peer must ask again. Partner: the load in `execute`. */
  revoked(): void {
    if (this.#isClosed) return;
    storeRelease(this.#outWords, EPOCH_WORD, (loadAcquire(this.#outWords, EPOCH_WORD) + 1) | 0);
  }

  execute(words: Uint32Array, row: number, local: Pieces): boolean {
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
    // Whatever is wrong with it, the peer shall say so: then it goes as a frame.
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
    // Both of its own: they live as long as their user wants.
    using undo = new DisposableStack();
    const memory = undo.use(SharedMemory.open(mapping.memory.duplicateFd()));
    const bell = EventFd.adopt(mapping.bell.duplicate().release());
    undo.move();
    const epoch = this.#epoch;
    return new Window(memory, bell, offset, sizeBytes, () => this.#isCurrent(epoch));
  }

  /** Whether nothing was revoked since. */
  #isCurrent(epoch: number): boolean {
    return !this.#isClosed && !this.#isPeerGone && loadAcquire(this.#inWords, EPOCH_WORD) === epoch;
  }

  /** A mapping known here or asked for. An answer that something else's revocation made stale is asked for again. */
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
      // A full socket means that the peer does not listen; then frames do.
      return this.#parts.socket.sendFds(encodeMessage(message), fds) === MESSAGE_BYTES;
    } catch {
      // It is gone; the socket's own event says so to everybody else.
      this.#isPeerGone = true;
      return false;
    }
  }

  /** Something came on the socket. False when the peer is gone, or talks nonsense. */
  listen(qp: LinkedQp, regions: RegionTable): boolean {
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

  /** The same checks as for a frame; in doubt, the frame shall decide. */
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
    // Read only, and the kernel sees to it.
    using readable = Fd.open(`/proc/self/fd/${region.memory.fd}`, constants.O_RDONLY);
    this.#tell(grant, [readable.fd, this.doorbellFd]);
  }

  #answered(message: Exclude<ShmMessage, { kind: 'ask' }>, fd: Fd | undefined, bell: Fd | undefined): void {
    const asked = this.#asked.get(message.rkey);
    if (asked === undefined) return;
    this.#asked.delete(message.rkey);
    // What was granted before a revocation may be what was revoked.
    const isCurrent = this.#isCurrent(asked.epoch);
    const isWhole = message.kind === 'grant' && fd !== undefined && bell !== undefined;
    const mapping = isCurrent && isWhole ? this.#open(message, fd, bell) : undefined;
    if (mapping !== undefined) this.#mappings.set(message.rkey, mapping);
    else if (isCurrent) this.#refused.add(message.rkey);
    for (const resolve of asked.waiting) resolve(mapping);
  }

  #open(grant: { access: number; address: number; sizeBytes: number }, fd: Fd, bell: Fd): Mapping | undefined {
    try {
      const readOnly = (grant.access & writing) === 0;
      const memory = SharedMemory.open(fd.duplicate(), { sizeBytes: grant.sizeBytes, readOnly });
      return { memory, bell: bell.duplicate(), access: grant.access, address: grant.address };
    } catch {
      // Not sealed, too small, or no memory at all: frames do as well.
      return undefined;
    }
  }

  #forgetMappings(): void {
    this.#epoch = loadAcquire(this.#inWords, EPOCH_WORD);
    for (const { memory, bell } of this.#mappings.values()) {
      memory.close();
      bell.close();
    }
    this.#mappings.clear();
    this.#lastMapping = undefined;
    this.#refused.clear();
  }

  /** What the peer rings; see ProviderQp. */
  get doorbellFd(): number {
    this.#bell ??= EventFd.create();
    return this.#bell.fd;
  }

  /** The socket says that the peer has gone. */
  peerGone(): void {
    this.#isPeerGone = true;
  }

  close(): void {
    // First of all: from here on the peer reaches nothing any more.
    this.revoked();
    this.#isClosed = true;
    this.#onClose();
    this.#forgetMappings();
    for (const { waiting } of this.#asked.values()) for (const resolve of waiting) resolve(undefined);
    this.#asked.clear();
    const { socket, outgoing, incoming, event, peerEvent } = this.#parts;
    for (const part of [socket, outgoing, incoming, event, peerEvent]) part.close();
    this.#bell?.close();
  }
}

class Window implements RemoteWindow {
  readonly memory: SharedMemory;
  readonly #bell: EventFd;
  readonly offset: number;
  readonly sizeBytes: number;
  readonly #isCurrent: () => boolean;

  constructor(memory: SharedMemory, bell: EventFd, offset: number, sizeBytes: number, isCurrent: () => boolean) {
    this.memory = memory;
    this.#bell = bell;
    this.offset = offset;
    this.sizeBytes = sizeBytes;
    this.#isCurrent = isCurrent;
  }

  get isValid(): boolean {
    return !this.memory.isClosed && this.#isCurrent();
  }

  ring(): void {
    if (!this.#bell.isClosed) this.#bell.signal();
  }

  close(): void {
    this.memory.close();
    this.#bell.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
