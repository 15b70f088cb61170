// The queue pairs of one stream on any RDMA device: one for blocks, one for notices, and counters of what is under way.
//
// A notice is a count modulo 2^31 in the immediate data of a message, and the top bit. Counts only grow, so a notice that
// waits for room is replaced by the next one.
//
// Where the wire can write to the peer's memory directly (`shm`), a block is a plain WRITE and its notice follows on the other queue
// pair once the WRITE is done: a WRITE that waits behind notices would not be direct. On all other wires the block's last WRITE
// carries the notice itself.

import { UnsupportedError, UsageError } from '../../errors.ts';
import { type Poller, pollEvents, SharedMemory } from '../../native/index.ts';
import {
  access,
  CompletionBatch,
  type CompletionChannel,
  type Cq,
  completionOpcodes,
  type Device,
  likelyCauses,
  localQpEndpoint,
  type Mr,
  modifyToRts,
  type Pd,
  type Qp,
  type QpEndpoint,
  ReceiveBatch,
  type RemoteRegion,
  SendBatch,
  statusName,
} from '../../verbs/index.ts';
import { WIRE_TOKEN } from './data-loop.ts';
import type { Path } from './protocol.ts';
import { StreamFailure } from './stream-failure.ts';

/** WRITEs under way at most. */
const WRITES = 64;
const NOTICES = 32;
const RECEIVES = 128;
/** Of an announcement: block, rkey, address in two words. */
const ANNOUNCEMENT_BYTES = 16;
const POLL_ROWS = 32;
const COUNT_MASK = 0x7fff_ffff;
const TOP_BIT = 0x8000_0000;
/** Cut to this even where a device takes more: others get a turn in between. */
const MAX_PIECE_BYTES = 4 * 1024 * 1024;

/** What a strategy hears of its path. */
export interface PathEvents {
  /** The oldest WRITE is done. */
  onWritten(): void;
  /** The peer's count, modulo 2^31. */
  onNotification(count: number, hasTopBit: boolean): void;
  onAnnouncement(block: number, region: RemoteRegion): void;
}

export class VerbsPath implements Disposable {
  readonly device: Device;
  readonly pd: Pd;
  /** WRITEs are at most so long. */
  readonly pieceBytes: number;
  readonly #undo: DisposableStack;
  readonly #channel: CompletionChannel;
  readonly #cq: Cq;
  readonly #blocks: Qp;
  readonly #notices: Qp;
  readonly #local: QpEndpoint[];
  readonly #completions: CompletionBatch;
  readonly #writeBatch: SendBatch;
  readonly #notificationBatch: SendBatch;
  readonly #receives: ReceiveBatch;
  readonly #letters: Mr;
  readonly #letterWords: Uint32Array;
  readonly #carriesNotifications: boolean;
  /** By WRITE, modulo WRITES: the notice that is due after it, or -1. */
  readonly #notificationAfter = new Float64Array(WRITES);
  #remote: Path = [];
  #posted = 0;
  #written = 0;
  #notificationsPosted = 0;
  #notificationsDone = 0;
  #waitingNotification = -1;

  /** Takes the device over. */
  constructor(device: Device) {
    using undo = new DisposableStack();
    this.device = undo.use(device);
    this.#carriesNotifications = device.info.transport !== 'shm';
    const { maxMessageBytes, maxInlineBytes } = device.attributes;
    this.pieceBytes = Math.min(MAX_PIECE_BYTES, 2 ** Math.floor(Math.log2(maxMessageBytes)));
    this.pd = device.createPd();
    this.#channel = device.createChannel();
    this.#cq = device.createCq({ entries: 2 * (WRITES + NOTICES + RECEIVES), channel: this.#channel });
    const inline = Math.min(maxInlineBytes, ANNOUNCEMENT_BYTES);
    const options = { sendCq: this.#cq, receiveRequests: RECEIVES, maxSge: 1, maxInlineBytes: inline };
    this.#blocks = this.pd.createQp({ ...options, sendRequests: WRITES });
    this.#notices = this.pd.createQp({ ...options, sendRequests: NOTICES });
    this.#completions = undo.use(new CompletionBatch(POLL_ROWS));
    this.#writeBatch = undo.use(new SendBatch({ capacity: 1, maxSge: 1 }));
    this.#notificationBatch = undo.use(new SendBatch({ capacity: 1, maxSge: 1 }));
    this.#receives = undo.use(new ReceiveBatch({ capacity: RECEIVES, maxSge: 1 }));
    // Announcements that come, then those that go.
    const letters = undo.use(
      SharedMemory.create({ sizeBytes: (RECEIVES + NOTICES) * ANNOUNCEMENT_BYTES, name: 'vortex-letters' }),
    );
    this.#letters = this.pd.register(letters, { access: access.localWrite });
    this.#letterWords = new Uint32Array(letters.buffer);
    for (const qp of [this.#blocks, this.#notices]) qp.init(access.localWrite | access.remoteWrite);
    this.#local = [localQpEndpoint(this.#blocks), localQpEndpoint(this.#notices)];
    this.#postReceives();
    const onFatal = ({ reason }: { readonly reason: string }): void => {
      this.#fatal ??= reason;
    };
    device.events.on('qpFatal', onFatal);
    undo.defer(() => device.events.off('qpFatal', onFatal));
    this.#undo = undo.move();
  }

  /** Where nothing is posted, no completion tells that a queue pair has died. */
  #fatal: string | undefined;

  /** An rkey for the peer of this path alone. */
  grant(mr: Mr): RemoteRegion {
    return mr.remote(mr.grant(this.#blocks, access.localWrite | access.remoteWrite));
  }

  /** What to tell the peer. */
  offer(regions: Readonly<Record<string, RemoteRegion>> = {}): Path {
    return this.#local.map((endpoint, index) => (index === 0 ? { ...endpoint, regions } : endpoint));
  }

  /** The region that the peer must have offered by this name. */
  static regionOf(path: Path, name: string): RemoteRegion {
    const region = path[0]?.regions[name];
    if (region === undefined) throw new UsageError(`the peer does not offer its ${name}`);
    return region;
  }

  connect(remote: Path): void {
    if (remote.length !== this.#local.length) throw new UsageError('the peer has no queue pairs');
    this.#remote = remote;
    // A receiver may need long to post a receive again, so it is asked for ever; the control connection knows whether it lives.
    modifyToRts(this.#blocks, this.#local[0], remote[0], { timeout: 16, minRnrTimer: 1 });
    modifyToRts(this.#notices, this.#local[1], remote[1], { timeout: 16, minRnrTimer: 1 });
  }

  /** Finds the peer's memory, where WRITEs can be direct: until then they would go by frames. */
  async prepare(region: RemoteRegion, signal: AbortSignal): Promise<void> {
    if (this.#carriesNotifications || this.#remote.length === 0) return;
    for (;;) {
      signal.throwIfAborted();
      try {
        using _window = await this.#blocks.mapRemote(region.rkey, region.address, region.sizeBytes);
        return;
      } catch (error) {
        // Where the memory cannot be handed on (a remote device), WRITEs go as they can.
        if (error instanceof UnsupportedError) return;
        const isEarly = error instanceof Error && 'code' in error && error.code === 'MILLRACE_ERR_NOT_RUNNING';
        if (!isEarly) throw error;
      }
      const { promise, resolve } = Promise.withResolvers<void>();
      setTimeout(resolve, 1);
      await promise;
    }
  }

  get hasRoom(): boolean {
    return this.#posted - this.#written < WRITES;
  }

  /** One WRITE; `notice` is the count to tell when it is there, or negative. */
  write(from: Mr, offset: number, sizeBytes: number, toAddress: number, rkey: number, notice: number): void {
    const batch = this.#writeBatch;
    batch.clear();
    const wrId = this.#posted;
    if (notice >= 0 && this.#carriesNotifications) batch.writeWithImm(wrId, toAddress, rkey, notice);
    else batch.write(wrId, toAddress, rkey);
    batch.sge(from.lkey, from.address + offset, sizeBytes);
    this.#notificationAfter[wrId % WRITES] = this.#carriesNotifications ? -1 : notice;
    this.#posted++;
    this.#post(this.#blocks, batch);
  }

  /** Tells the peer a count. Those that have no room are replaced by later ones. */
  notify(notice: number): void {
    if (this.#notificationsPosted - this.#notificationsDone >= NOTICES) {
      this.#waitingNotification = notice;
      return;
    }
    const batch = this.#notificationBatch;
    batch.clear();
    batch.sendWithImm(this.#notificationsPosted, notice);
    this.#notificationsPosted++;
    this.#post(this.#notices, batch);
  }

  get hasRoomToAnnounce(): boolean {
    return this.#notificationsPosted - this.#notificationsDone < NOTICES;
  }

  announce(block: number, { rkey, address }: RemoteRegion): void {
    const place = RECEIVES + (this.#notificationsPosted % NOTICES);
    const at = place * (ANNOUNCEMENT_BYTES / 4);
    this.#letterWords[at] = block;
    this.#letterWords[at + 1] = rkey;
    this.#letterWords[at + 2] = address;
    this.#letterWords[at + 3] = address / 2 ** 32;
    const batch = this.#notificationBatch;
    batch.clear();
    batch.send(this.#notificationsPosted).sge(this.#letters.lkey, this.#letters.address + at * 4, ANNOUNCEMENT_BYTES);
    this.#notificationsPosted++;
    this.#post(this.#notices, batch);
  }

  watch(poller: Poller): void {
    poller.add(this.#channel.fd, pollEvents.in, WIRE_TOKEN);
  }

  /** Handles what has completed; true when something has. */
  poll(events: PathEvents): boolean {
    let isMoved = false;
    for (;;) {
      const count = this.#cq.poll(this.#completions);
      for (let index = 0; index < count; index++) this.#complete(index, events);
      if (this.#fatal !== undefined) throw new StreamFailure('wire', `the queue pair failed: ${this.#fatal}`);
      if (count === 0) return isMoved;
      isMoved = true;
    }
  }

  /** Asks for an event at the next completion. Poll once more afterwards. */
  arm(): void {
    this.#channel.take();
    this.#cq.arm();
  }

  close(): void {
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #complete(index: number, events: PathEvents): void {
    const completions = this.#completions;
    const status = completions.status(index);
    if (status !== 0) {
      const name = statusName(status);
      throw new StreamFailure('wire', `a request to the peer failed: ${name} (${likelyCauses[name]})`);
    }
    const isOfBlocks = completions.qpNumber(index) === this.#blocks.number;
    if (completions.opcode(index) < completionOpcodes.receive) {
      if (isOfBlocks) this.#onWritten(events);
      else this.#onNotificationDone();
      return;
    }
    const place = completions.wrId(index);
    if (completions.hasImm(index)) {
      const imm = completions.imm(index);
      this.#repost(isOfBlocks ? this.#blocks : this.#notices, place);
      events.onNotification(imm & COUNT_MASK, imm >= TOP_BIT);
      return;
    }
    if (isOfBlocks || completions.byteLength(index) !== ANNOUNCEMENT_BYTES) {
      throw new StreamFailure('nonsense', 'the peer sent a message of no known kind');
    }
    const at = place * (ANNOUNCEMENT_BYTES / 4);
    const words = this.#letterWords;
    const [block, rkey, address] = [words[at], words[at + 1], words[at + 2] + words[at + 3] * 2 ** 32];
    this.#repost(this.#notices, place);
    if (!Number.isSafeInteger(address)) throw new StreamFailure('nonsense', 'the peer announced no address');
    events.onAnnouncement(block, { rkey, address, sizeBytes: 0 });
  }

  #onWritten(events: PathEvents): void {
    const notice = this.#notificationAfter[this.#written % WRITES];
    this.#written++;
    if (notice >= 0) this.notify(notice);
    events.onWritten();
  }

  #onNotificationDone(): void {
    this.#notificationsDone++;
    const notice = this.#waitingNotification;
    if (notice < 0) return;
    this.#waitingNotification = -1;
    this.notify(notice);
  }

  #post(qp: Qp, batch: SendBatch): void {
    let taken = 0;
    try {
      taken = qp.postSend(batch);
    } catch (error) {
      throw new StreamFailure('wire', error instanceof Error ? error.message : String(error), { cause: error });
    }
    // There was room by our own count.
    if (taken < 1) throw new StreamFailure('wire', `queue pair ${qp.number} takes no more requests`);
  }

  #postReceives(): void {
    for (const qp of [this.#blocks, this.#notices]) {
      this.#receives.clear();
      for (let place = 0; place < RECEIVES; place++) this.#addReceive(qp, place);
      qp.postReceive(this.#receives);
    }
  }

  #repost(qp: Qp, place: number): void {
    this.#receives.clear();
    this.#addReceive(qp, place);
    qp.postReceive(this.#receives);
  }

  /** Only the queue pair of notices gets messages with bytes. */
  #addReceive(qp: Qp, place: number): void {
    this.#receives.receive(place);
    if (qp !== this.#notices) return;
    const { lkey, address } = this.#letters;
    this.#receives.sge(lkey, address + place * ANNOUNCEMENT_BYTES, ANNOUNCEMENT_BYTES);
  }
}

/** The notice of a count; the top bit says that the block it ends with is the last one and not full. */
export function notificationOf(count: number, isLast: boolean): number {
  return (count % 2 ** 31) + (isLast ? TOP_BIT : 0);
}

/** The count that a notice means, knowing that it is not less than `known` and not more than `max`. */
export function countOf(notice: number, known: number, max: number): number {
  const ahead = (notice - (known % 2 ** 31) + 2 ** 31) % 2 ** 31;
  if (known + ahead > max) throw new StreamFailure('nonsense', `a count of ${notice} where at most ${max} can be`);
  return known + ahead;
}
