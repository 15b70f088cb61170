// The transport of a link: a registered region, one queue pair for the index and some for data, on
// any device.

import { MillraceError, UnsupportedError } from '../errors.ts';
import { Fd, type SharedMemory } from '../native/index.ts';
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
  type Mtu,
  modifyToRts,
  type Qp,
  type QpEndpoint,
  type RemoteRegion,
  type RemoteWindow,
  sendFlags,
  statusName,
} from '../verbs/index.ts';
import type { ControlPath } from './indexer.ts';
import { Receives } from './receives.ts';
import { controlOffset, controlWords, type RingNumber } from './region-layout.ts';
import { RequestQueue } from './request-queue.ts';

export interface TransportOptions {
  readonly dataQps: number;
  readonly sendRequests: number;
  readonly requestsPerPost: number;
  readonly receives: number;
  readonly sharedReceiveQueue: boolean;
  /** Slot size of the rings. */
  readonly slotBytes: number;
  /** Index in the port's GID table; default: the device's choice. */
  readonly gidIndex?: number | undefined;
  /** The greatest path MTU; default: the port's. */
  readonly mtu?: number | undefined;
}

/** What each side must know of the other's transport. */
interface TransportOffer {
  /** The index queue pair first. */
  readonly qps: readonly QpEndpoint[];
  readonly region: RemoteRegion;
}

interface TransportEvents {
  /** Records up to this position were written. */
  onNotification(position: number): void;
  /** The control words changed. */
  onControlNotification(): void;
  /** The transport does not work any more. Called once. */
  onFailure(reason: string): void;
}

/** The retries take about a second in all; then the session recovers. */
const ACK_TIMEOUT_CODE = 15;
const RETRIES = 6;
const INDEX_QP = 0;
const POLL_ROWS = 64;
const MAP_MS = 2000;
/**
 * One in so many requests of the index queue pair is signaled, so that their places in the queue
 * come free.
 */
const INDEX_SIGNAL_EVERY = 16;
/**
 * Over `tcp` an acknowledgement is a message like any other, so not each WRITE of data asks for
 * one. One in so many of a queue pair does: with as many under way, a completion is sure to come,
 * which the flusher relies on when it lets records gather. Partner: BUSY_PER_QP in flusher.ts.
 */
const TCP_SIGNAL_EVERY = 4;

export class Transport implements ControlPath, Disposable {
  readonly device: Device;
  readonly offer: TransportOffer;
  readonly #undo: DisposableStack;
  readonly #mr: Mr;
  readonly #cq: Cq;
  readonly channel: CompletionChannel;
  readonly #completions = new CompletionBatch(POLL_ROWS);
  readonly #queues: RequestQueue[] = [];
  readonly #byNumber = new Map<number, RequestQueue>();
  readonly #receives: Receives;
  readonly #options: TransportOptions;
  readonly #readRing: RingNumber;
  readonly #events: TransportEvents;
  readonly #ownWords: Uint32Array;
  #remote: RemoteRegion = { address: 0, rkey: 0, sizeBytes: 0 };
  #window: RemoteWindow | undefined;
  #doorbell: Fd | undefined;
  #words: Uint32Array | undefined;
  #nextQueue = 1;
  #indexPosts = 0;
  readonly #signalEvery: number;
  #isConnected = false;
  #hasFailed = false;
  posts = 0;
  notificationsOut = 0;
  notificationsIn = 0;

  /** `readRing` is the ring this side reads. The memory is the link's, and stays. */
  constructor(
    device: Device,
    memory: SharedMemory,
    readRing: RingNumber,
    options: TransportOptions,
    events: TransportEvents,
  ) {
    using undo = new DisposableStack();
    const { dataQps, sendRequests, requestsPerPost, receives } = options;
    this.device = device;
    this.#options = options;
    this.#events = events;
    this.#signalEvery = this.wire === 'tcp' ? TCP_SIGNAL_EVERY : 1;
    this.#readRing = readRing;
    this.#ownWords = new Uint32Array(memory.buffer, controlOffset(readRing), 2);
    const pd = undo.use(device.createPd());
    this.#mr = undo.use(pd.register(memory, { access: access.localWrite | access.remoteWrite }));
    this.channel = undo.use(device.createChannel());
    const count = dataQps + 1;
    this.#cq = undo.use(device.createCq({ entries: count * (sendRequests + receives), channel: this.channel }));
    this.#receives = undo.use(new Receives(pd, receives, options.sharedReceiveQueue));
    const { srq } = this.#receives;
    undo.use(this.#completions);
    const onGone = (): void => this.fail('the device is gone');
    device.events.on('deviceGone', onGone);
    undo.defer(() => device.events.off('deviceGone', onGone));
    for (let index = 0; index < count; index++) {
      const spec = { sendCq: this.#cq, sendRequests, receiveRequests: receives, maxSge: 1, ...(srq && { srq }) };
      const qp = pd.createQp(spec);
      const queue = undo.use(new RequestQueue(qp, sendRequests, requestsPerPost));
      this.#queues.push(queue);
      this.#byNumber.set(qp.number, queue);
      qp.init(access.localWrite | access.remoteWrite);
    }
    this.offer = { qps: this.#queues.map(({ qp }) => endpointOf(qp, options)), region: this.#mr.remote() };
    this.#receives.fill(this.#queues.map(({ qp }) => qp));
    // Where nothing is posted, no completion tells of a queue pair in ERR.
    const onFatal = ({ qpNumber, reason }: { readonly qpNumber: number; readonly reason: string }): void => {
      if (this.#byNumber.has(qpNumber)) this.fail(reason);
    };
    device.events.on('qpFatal', onFatal);
    undo.defer(() => device.events.off('qpFatal', onFatal));
    this.#undo = undo.move();
  }

  get wire(): string {
    return this.device.info.transport;
  }

  /**
   * Brings the queue pairs to RTS. The peer may write from now on; what we write arrives once its
   * queue pairs are in RTR.
   */
  connect(remote: TransportOffer): void {
    const { gidIndex, slotBytes } = this.#options;
    const options = { timeout: ACK_TIMEOUT_CODE, retryCount: RETRIES, rnrRetry: 7, minRnrTimer: 1, maxRdAtomic: 1 };
    for (let index = 0; index < this.#queues.length; index++) {
      const { qp } = this.#queues[index];
      const [local, peer] = [this.offer.qps[index], remote.qps[index]];
      if (local === undefined || peer === undefined) {
        throw new MillraceError('MILLRACE_ERR_FAILED', `the peer has ${remote.qps.length} queue pairs`);
      }
      const mtu = Math.min(local.mtu, peer.mtu);
      // The bytes behind a record in its last slot must not arrive later than the record's proof.
      if (mtu < slotBytes) {
        const advice = 'set channel.slotBytes to no more';
        throw new MillraceError(
          'MILLRACE_ERR_FAILED',
          `slots of ${slotBytes} bytes on a path MTU of ${mtu}: ${advice}`,
        );
      }
      modifyToRts(qp, local, peer, { ...options, ...(gidIndex !== undefined && { gidIndex }) });
    }
    this.#remote = remote.region;
    this.#isConnected = true;
  }

  /** The peer's region, where it can be mapped. Undefined where that is not how the wire works. */
  async map(): Promise<RemoteWindow | undefined> {
    try {
      const window = await this.#mapRemote();
      if (this.#hasFailed) {
        window.close();
        return undefined;
      }
      this.#window = this.#undo.use(window);
      const { doorbellFd } = this.#queues[INDEX_QP].qp;
      // A duplicate: the queue pair may close its own at any time.
      if (doorbellFd !== undefined) this.#doorbell = this.#undo.use(new Fd(doorbellFd).duplicate());
      if (window.offset !== 0 || window.memory.sizeBytes < window.sizeBytes) {
        throw new MillraceError('MILLRACE_ERR_FAILED', `the peer's region begins at ${window.offset} of its memory`);
      }
      this.#words = new Uint32Array(window.memory.buffer, window.offset + controlOffset(this.#readRing), 2);
      return window;
    } catch (error) {
      if (error instanceof UnsupportedError) return undefined;
      throw error;
    }
  }

  get window(): RemoteWindow | undefined {
    return this.#window;
  }

  /** The doorbell that the peer rings where memory is mapped; edge-triggered. */
  get doorbell(): Fd | undefined {
    return this.#doorbell;
  }

  /** Retries until the two queue pairs have found each other. */
  async #mapRemote(): Promise<RemoteWindow> {
    const { rkey, address, sizeBytes } = this.#remote;
    const { qp } = this.#queues[INDEX_QP];
    const endMs = performance.now() + MAP_MS;
    for (;;) {
      try {
        return await qp.mapRemote(rkey, address, sizeBytes);
      } catch (error) {
        const isEarly = error instanceof MillraceError && error.code === 'MILLRACE_ERR_NOT_RUNNING';
        if (!isEarly || this.#hasFailed || performance.now() > endMs) throw error;
      }
      this.poll();
      const { promise, resolve } = Promise.withResolvers<void>();
      setImmediate(resolve);
      await promise;
    }
  }

  // ControlPath

  get words(): Uint32Array | undefined {
    return this.#words;
  }

  postControl(readPosition: number, readerMode: number, isNotification: boolean): boolean {
    const queue = this.#queues[INDEX_QP];
    if (!this.#isUsable || !queue.hasRoom) return false;
    // Plain stores: the device reads them when it carries out the WRITE. One that is under way may
    // read these newer words, which does no harm. Partner: OutgoingRing.refresh and readerMode at
    // the peer, by way of the wire.
    this.#ownWords[controlWords.readPosition] = readPosition;
    this.#ownWords[controlWords.readerMode] = readerMode;
    const at = controlOffset(this.#readRing);
    queue.posted++;
    const isSignaled = isNotification || ++this.#indexPosts % INDEX_SIGNAL_EVERY === 0;
    const flags = isSignaled ? sendFlags.signaled : 0;
    const { batch } = queue;
    if (isNotification) {
      this.notificationsOut++;
      batch.writeWithImm(queue.posted, this.#remote.address + at, this.#remote.rkey, 0, flags | sendFlags.solicited);
    } else {
      batch.write(queue.posted, this.#remote.address + at, this.#remote.rkey, flags);
    }
    batch.sge(this.#mr.lkey, this.#mr.address + at, 8);
    return this.#post(queue);
  }

  /** Tells the peer that records up to here are in its memory, without writing any. */
  postNotification(position: number): boolean {
    if (this.#window !== undefined) {
      this.notificationsOut++;
      this.#window.ring();
      return true;
    }
    const queue = this.#queues[1];
    if (!queue.hasRoom) this.poll();
    if (!this.#isUsable) return false;
    if (!queue.hasRoom) {
      // A notification that is not sent is never asked for again.
      this.fail('the peer acknowledges no notifications');
      return false;
    }
    this.notificationsOut++;
    const { address, rkey } = this.#remote;
    queue.batch.writeWithImm(++queue.posted, address, rkey, position, sendFlags.signaled | sendFlags.solicited);
    return this.#post(queue);
  }

  /** WRITEs of data that have not completed. */
  get inFlight(): number {
    let count = 0;
    for (let index = 1; index < this.#queues.length; index++) count += this.#queues[index].inFlight;
    return count;
  }

  /**
   * Adds a WRITE of our copy of a range to the peer's, on the next data queue pair. `notifyTo` is
   * the position that the peer is notified of with it, or negative. False when all queues are full.
   * `submit` posts it.
   */
  write(offset: number, sizeBytes: number, notifyTo: number): boolean {
    const queue = this.#dataQueue();
    if (queue === undefined) return false;
    const { batch } = queue;
    const to = this.#remote.address + offset;
    // At most the last one of a batch is signaled, and which that is is not known yet: see
    // `submit`.
    if (notifyTo < 0) {
      batch.write(++queue.posted, to, this.#remote.rkey, 0);
    } else {
      this.notificationsOut++;
      batch.writeWithImm(++queue.posted, to, this.#remote.rkey, notifyTo, sendFlags.solicited);
    }
    batch.sge(this.#mr.lkey, this.#mr.address + offset, sizeBytes);
    return true;
  }

  /** Posts what was added, one call for each queue pair. */
  submit(): void {
    for (let index = 1; index < this.#queues.length; index++) {
      const queue = this.#queues[index];
      const { batch } = queue;
      if (batch.count === 0) continue;
      queue.unsignaled += batch.count;
      if (queue.unsignaled >= this.#signalEvery) {
        batch.words[(batch.count - 1) * batch.rowWords + 1] |= sendFlags.signaled;
        queue.unsignaled = 0;
      }
      this.#post(queue);
    }
  }

  /**
   * Whether the channel tells of everything: then there is nothing to poll for without an event, as
   * a poll of a `tcp` device is a system call.
   */
  get isTold(): boolean {
    return this.wire === 'tcp';
  }

  /** Handles completions. Cheap when there are none, unless `isTold`. */
  poll(): void {
    if (this.#hasFailed) return;
    for (;;) {
      const count = this.#cq.poll(this.#completions);
      for (let index = 0; index < count; index++) {
        this.#complete(index);
        if (this.#hasFailed) return;
      }
      if (count < POLL_ROWS) return;
    }
  }

  /** Asks for an event at the next completion. Poll once more afterwards. */
  arm(): void {
    if (!this.#hasFailed) this.#cq.arm();
  }

  fail(reason: string): void {
    if (this.#hasFailed) return;
    this.#hasFailed = true;
    this.#events.onFailure(reason);
  }

  /** Breaks the queue pairs on purpose, for tests and soaks. */
  breakQps(): void {
    for (const { qp } of this.#queues) if (qp.state !== 'RESET') qp.modify('ERR');
    this.fail('broken on purpose');
  }

  close(): void {
    this.#hasFailed = true;
    this.#words = undefined;
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  get #isUsable(): boolean {
    return this.#isConnected && !this.#hasFailed;
  }

  #dataQueue(): RequestQueue | undefined {
    if (!this.#isUsable) return undefined;
    for (let tries = 1; tries < this.#queues.length; tries++) {
      const queue = this.#queues[this.#nextQueue];
      this.#nextQueue = this.#nextQueue + 1 < this.#queues.length ? this.#nextQueue + 1 : 1;
      if (queue.batch.count < queue.batch.capacity && queue.hasRoom) return queue;
    }
    return undefined;
  }

  #post(queue: RequestQueue): boolean {
    this.posts++;
    const problem = queue.post();
    if (problem !== '') this.fail(problem);
    return !this.#hasFailed;
  }

  #complete(index: number): void {
    const completions = this.#completions;
    const status = completions.status(index);
    const queue = this.#byNumber.get(completions.qpNumber(index));
    if (status !== 0) {
      const name = statusName(status);
      this.fail(`${name}: ${likelyCauses[name]}`);
      return;
    }
    if (queue === undefined) return;
    if (completions.opcode(index) < completionOpcodes.receive) {
      queue.completed = completions.wrId(index);
      return;
    }
    this.notificationsIn++;
    this.#receives.repost(queue.qp, completions.wrId(index));
    if (queue === this.#queues[INDEX_QP]) this.#events.onControlNotification();
    else this.#events.onNotification(completions.imm(index));
  }
}

/** The GID that the peer sends to must be the one that we send from. */
function endpointOf(qp: Qp, { gidIndex, mtu }: TransportOptions): QpEndpoint {
  const local = localQpEndpoint(qp);
  const gid = gidIndex === undefined ? undefined : qp.pd.device.port().gids[gidIndex];
  return { ...local, gid: gid ?? local.gid, mtu: Math.min(mtu ?? local.mtu, local.mtu) as Mtu };
}
