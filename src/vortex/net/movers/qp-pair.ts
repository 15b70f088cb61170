// The two queue pairs of one stream on any RDMA device: one for blocks, one for notifications, with
// counters of both.
//
// A notification is a count modulo 2^31 in the immediate data of a message, and the top bit. Counts
// only grow, so a notification that waits for room is replaced by the next one.
//
// On the `shm` wire, which can write to the peer's memory directly, a block is a plain WRITE and
// its notification follows on the other queue pair once the WRITE has completed: a WRITE that waits
// behind notifications would not be direct. On all other wires the last WRITE of a block carries
// the notification itself.

import { UnsupportedError, UsageError } from '../../../errors.ts';
import { type Poller, pollEvents, SharedMemory } from '../../../native/index.ts';
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
} from '../../../verbs/index.ts';
import type { QpEndpoints } from '../protocol.ts';
import { StreamFailure } from '../stream-failure.ts';
import { WIRE_TOKEN } from './mover.ts';

/** WRITEs in flight at most. */
const WRITES = 64;
const NOTIFICATIONS = 32;
const RECEIVES = 128;
/** An announcement is four words: block, rkey, address. */
const ANNOUNCEMENT_BYTES = 16;
const POLL_ROWS = 32;
const COUNT_MASK = 0x7fff_ffff;
const TOP_BIT = 0x8000_0000;
/**
 * The largest WRITE, even if the device takes larger ones, so that completions are polled in
 * between.
 */
const MAX_PIECE_BYTES = 4 * 1024 * 1024;

/** What a mover is told of completions. */
export interface QpPairEvents {
  /** The oldest WRITE has completed. */
  onWritten(): void;
  /** The peer's count, modulo 2^31. */
  onNotification(count: number, hasTopBit: boolean): void;
  onAnnouncement(block: number, region: RemoteRegion): void;
}

export class QpPair implements Disposable {
  readonly device: Device;
  readonly pd: Pd;
  /** The length of a WRITE at most. */
  readonly pieceBytes: number;
  readonly #undo: DisposableStack;
  readonly #channel: CompletionChannel;
  readonly #cq: Cq;
  readonly #blockQp: Qp;
  readonly #notificationQp: Qp;
  readonly #local: QpEndpoint[];
  readonly #completions: CompletionBatch;
  readonly #writeBatch: SendBatch;
  readonly #notificationBatch: SendBatch;
  readonly #receives: ReceiveBatch;
  readonly #announcements: Mr;
  readonly #announcementWords: Uint32Array;
  readonly #carriesNotifications: boolean;
  /** The notification to send after a WRITE, or -1; by WRITE modulo WRITES. */
  readonly #notificationAfter = new Float64Array(WRITES);
  #remote: QpEndpoints = [];
  #posted = 0;
  #written = 0;
  #notificationsPosted = 0;
  #notificationsDone = 0;
  #waitingNotification = -1;
  /** Why a queue pair has failed: without a request in flight no completion would show it. */
  #fatal: string | undefined;

  /** Takes over the device. */
  constructor(device: Device) {
    using undo = new DisposableStack();
    this.device = undo.use(device);
    this.#carriesNotifications = device.info.transport !== 'shm';
    const { maxMessageBytes, maxInlineBytes } = device.attributes;
    this.pieceBytes = Math.min(MAX_PIECE_BYTES, 2 ** Math.floor(Math.log2(maxMessageBytes)));
    this.pd = device.createPd();
    this.#channel = device.createChannel();
    this.#cq = device.createCq({ entries: 2 * (WRITES + NOTIFICATIONS + RECEIVES), channel: this.#channel });
    const inline = Math.min(maxInlineBytes, ANNOUNCEMENT_BYTES);
    const options = { sendCq: this.#cq, receiveRequests: RECEIVES, maxSge: 1, maxInlineBytes: inline };
    this.#blockQp = this.pd.createQp({ ...options, sendRequests: WRITES });
    this.#notificationQp = this.pd.createQp({ ...options, sendRequests: NOTIFICATIONS });
    this.#completions = undo.use(new CompletionBatch(POLL_ROWS));
    this.#writeBatch = undo.use(new SendBatch({ capacity: 1, maxSge: 1 }));
    this.#notificationBatch = undo.use(new SendBatch({ capacity: 1, maxSge: 1 }));
    this.#receives = undo.use(new ReceiveBatch({ capacity: RECEIVES, maxSge: 1 }));
    // Announcements that are received, then those that are sent.
    const announcements = undo.use(
      SharedMemory.create({ sizeBytes: (RECEIVES + NOTIFICATIONS) * ANNOUNCEMENT_BYTES, name: 'vortex-announcements' }),
    );
    this.#announcements = this.pd.register(announcements, { access: access.localWrite });
    this.#announcementWords = new Uint32Array(announcements.buffer);
    for (const qp of [this.#blockQp, this.#notificationQp]) qp.init(access.localWrite | access.remoteWrite);
    this.#local = [localQpEndpoint(this.#blockQp), localQpEndpoint(this.#notificationQp)];
    this.#postReceives();
    const onFatal = ({ reason }: { readonly reason: string }): void => {
      this.#fatal ??= reason;
    };
    device.events.on('qpFatal', onFatal);
    undo.defer(() => device.events.off('qpFatal', onFatal));
    this.#undo = undo.move();
  }

  /** The region with an rkey that only the peer of this QP pair may use. */
  grant(mr: Mr): RemoteRegion {
    return mr.remote(mr.grant(this.#blockQp, access.localWrite | access.remoteWrite));
  }

  /** What the peer must know to connect. */
  offer(regions: Readonly<Record<string, RemoteRegion>> = {}): QpEndpoints {
    return this.#local.map((endpoint, index) => (index === 0 ? { ...endpoint, regions } : endpoint));
  }

  /** The region that the peer offers under this name. */
  static regionOf(endpoints: QpEndpoints, name: string): RemoteRegion {
    const region = endpoints[0]?.regions[name];
    if (region === undefined) throw new UsageError(`the peer offers no region named ${name}`);
    return region;
  }

  connect(remote: QpEndpoints): void {
    if (remote.length !== this.#local.length) throw new UsageError('the peer offers no queue pairs');
    this.#remote = remote;
    // RNR retries have no limit, because a receiver may need long to post receives again; the
    // control connection detects its death.
    modifyToRts(this.#blockQp, this.#local[0], remote[0], { timeout: 16, minRnrTimer: 1 });
    modifyToRts(this.#notificationQp, this.#local[1], remote[1], { timeout: 16, minRnrTimer: 1 });
  }

  /**
   * Maps the peer's memory on the `shm` wire, so that WRITEs are direct from the first one on;
   * others do nothing.
   */
  async prepare(region: RemoteRegion, signal: AbortSignal): Promise<void> {
    if (this.#carriesNotifications || this.#remote.length === 0) return;
    for (;;) {
      signal.throwIfAborted();
      try {
        using _window = await this.#blockQp.mapRemote(region.rkey, region.address, region.sizeBytes);
        return;
      } catch (error) {
        // The memory of a remote device cannot be mapped here; its WRITEs go without.
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

  /**
   * Posts one WRITE. `notification` is what to notify the peer of when it has arrived; negative:
   * nothing.
   */
  write(from: Mr, offset: number, sizeBytes: number, toAddress: number, rkey: number, notification: number): void {
    const batch = this.#writeBatch;
    batch.clear();
    const wrId = this.#posted;
    if (notification >= 0 && this.#carriesNotifications) batch.writeWithImm(wrId, toAddress, rkey, notification);
    else batch.write(wrId, toAddress, rkey);
    batch.sge(from.lkey, from.address + offset, sizeBytes);
    this.#notificationAfter[wrId % WRITES] = this.#carriesNotifications ? -1 : notification;
    this.#posted++;
    this.#post(this.#blockQp, batch);
  }

  /**
   * Notifies the peer of a count. While there is no room, a later notification replaces the one
   * that waits.
   */
  notify(notification: number): void {
    if (this.#notificationsPosted - this.#notificationsDone >= NOTIFICATIONS) {
      this.#waitingNotification = notification;
      return;
    }
    const batch = this.#notificationBatch;
    batch.clear();
    batch.sendWithImm(this.#notificationsPosted, notification);
    this.#notificationsPosted++;
    this.#post(this.#notificationQp, batch);
  }

  get hasRoomToAnnounce(): boolean {
    return this.#notificationsPosted - this.#notificationsDone < NOTIFICATIONS;
  }

  announce(block: number, { rkey, address }: RemoteRegion): void {
    const place = RECEIVES + (this.#notificationsPosted % NOTIFICATIONS);
    const at = place * (ANNOUNCEMENT_BYTES / 4);
    this.#announcementWords[at] = block;
    this.#announcementWords[at + 1] = rkey;
    this.#announcementWords[at + 2] = address;
    this.#announcementWords[at + 3] = address / 2 ** 32;
    const batch = this.#notificationBatch;
    batch.clear();
    batch
      .send(this.#notificationsPosted)
      .sge(this.#announcements.lkey, this.#announcements.address + at * 4, ANNOUNCEMENT_BYTES);
    this.#notificationsPosted++;
    this.#post(this.#notificationQp, batch);
  }

  watch(poller: Poller): void {
    poller.add(this.#channel.fd, pollEvents.in, WIRE_TOKEN);
  }

  /** Handles all completions; true when there were some. */
  poll(events: QpPairEvents): boolean {
    let isMoved = false;
    for (;;) {
      const count = this.#cq.poll(this.#completions);
      for (let index = 0; index < count; index++) this.#complete(index, events);
      if (this.#fatal !== undefined) throw new StreamFailure('wire', `the queue pair failed: ${this.#fatal}`);
      if (count === 0) return isMoved;
      isMoved = true;
    }
  }

  /** Asks for an event at the next completion. Call `poll` once more afterwards. */
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

  #complete(index: number, events: QpPairEvents): void {
    const completions = this.#completions;
    const status = completions.status(index);
    if (status !== 0) {
      const name = statusName(status);
      throw new StreamFailure('wire', `a request to the peer failed: ${name} (${likelyCauses[name]})`);
    }
    const isOfBlocks = completions.qpNumber(index) === this.#blockQp.number;
    if (completions.opcode(index) < completionOpcodes.receive) {
      if (isOfBlocks) this.#onWritten(events);
      else this.#onNotificationDone();
      return;
    }
    const place = completions.wrId(index);
    if (completions.hasImm(index)) {
      const imm = completions.imm(index);
      this.#repost(isOfBlocks ? this.#blockQp : this.#notificationQp, place);
      events.onNotification(imm & COUNT_MASK, imm >= TOP_BIT);
      return;
    }
    if (isOfBlocks || completions.byteLength(index) !== ANNOUNCEMENT_BYTES) {
      throw new StreamFailure('protocol', 'the peer sent a message of an unknown kind');
    }
    const at = place * (ANNOUNCEMENT_BYTES / 4);
    const words = this.#announcementWords;
    const [block, rkey, address] = [words[at], words[at + 1], words[at + 2] + words[at + 3] * 2 ** 32];
    this.#repost(this.#notificationQp, place);
    if (!Number.isSafeInteger(address)) throw new StreamFailure('protocol', 'the peer announced an invalid address');
    events.onAnnouncement(block, { rkey, address, sizeBytes: 0 });
  }

  #onWritten(events: QpPairEvents): void {
    const notification = this.#notificationAfter[this.#written % WRITES];
    this.#written++;
    if (notification >= 0) this.notify(notification);
    events.onWritten();
  }

  #onNotificationDone(): void {
    this.#notificationsDone++;
    const notification = this.#waitingNotification;
    if (notification < 0) return;
    this.#waitingNotification = -1;
    this.notify(notification);
  }

  #post(qp: Qp, batch: SendBatch): void {
    let taken = 0;
    try {
      taken = qp.postSend(batch);
    } catch (error) {
      throw new StreamFailure('wire', error instanceof Error ? error.message : String(error), { cause: error });
    }
    // By the counters here there was room.
    if (taken < 1) throw new StreamFailure('wire', `queue pair ${qp.number} takes no more requests`);
  }

  #postReceives(): void {
    for (const qp of [this.#blockQp, this.#notificationQp]) {
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

  /** Only the notification QP gets messages with bytes. */
  #addReceive(qp: Qp, place: number): void {
    this.#receives.receive(place);
    if (qp !== this.#notificationQp) return;
    const { lkey, address } = this.#announcements;
    this.#receives.sge(lkey, address + place * ANNOUNCEMENT_BYTES, ANNOUNCEMENT_BYTES);
  }
}

/**
 * The notification of a count; the top bit tells that the block it ends with is the last one and
 * not full.
 */
export function notificationOf(count: number, isLast: boolean): number {
  return (count % 2 ** 31) + (isLast ? TOP_BIT : 0);
}

/** The count of a notification, which is at least `known` and at most `max`. */
export function countOf(notification: number, known: number, max: number): number {
  const ahead = (notification - (known % 2 ** 31) + 2 ** 31) % 2 ** 31;
  if (known + ahead > max)
    throw new StreamFailure('protocol', `the peer sent a count of ${notification}, and at most ${max} is possible`);
  return known + ahead;
}
