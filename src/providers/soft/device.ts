// The soft device: its objects, its descriptors and timers, and the one place from which QPs make
// progress.

import { randomBytes } from 'node:crypto';
import { FdWatch, monotonicNs, Poller, pollEvents, TimerFd } from '../../native/index.ts';
import type {
  CqSpec,
  DeviceAttributes,
  DeviceEvent,
  DeviceInfo,
  MrSpec,
  PathTo,
  PortInfo,
  ProviderAh,
  ProviderChannel,
  ProviderDevice,
  ProviderMr,
  ProviderPd,
  ProviderQp,
  ProviderSrq,
  QpSpec,
  SrqSpec,
} from '../../verbs/index.ts';
import { DrivenChannel } from '../../verbs/index.ts';
import { type CompletionOwner, SoftCq } from './completion-queue.ts';
import type { FaultPlan } from './fault-plan.ts';
import { MAX_MESSAGE_BYTES } from './frame.ts';
import type { QpOwner, SoftQp } from './qp.ts';
import { ReceiveQueue } from './receive-queue.ts';
import { RegionTable } from './region.ts';
import type { Wire, WireHost } from './wire.ts';
import { marks, WorkList } from './work-list.ts';

const softAttributes: DeviceAttributes = {
  firmware: 'soft 1',
  vendorId: 0x6d_6c72,
  maxQps: 65_536,
  maxQpRequests: 32_768,
  maxSge: 32,
  maxInlineBytes: 1024,
  maxCqs: 65_536,
  maxCqEntries: 4_194_304,
  maxMrs: 1_000_000,
  maxMrBytes: 2 ** 40,
  maxPds: 65_536,
  maxSrqs: 65_536,
  maxSrqRequests: 65_536,
  maxRdAtomic: 128,
  maxMessageBytes: MAX_MESSAGE_BYTES,
  atomics: 'global',
  marksSolicited: true,
};

/**
 * How often a device that is only polled polls its descriptors, which tell of new peers and of
 * peers that have ended.
 */
const POLLS_A_DESCRIPTOR_POLL = 64;
const TIMER_TOKEN = 0xffff_ffff;
/**
 * So many times a program may poll before an acknowledgement goes out that waited for an answer of
 * the program to go out with.
 */
const POLLS_AN_ACK = 8;

interface Scheduled {
  readonly atNs: number;
  readonly action: () => void;
}

export class SoftDevice<Qp extends SoftQp> implements ProviderDevice, QpOwner<Qp>, CompletionOwner, WireHost<Qp> {
  readonly info: DeviceInfo;
  readonly attributes = softAttributes;
  readonly regions: RegionTable;
  readonly faults: FaultPlan | undefined;
  readonly poller = Poller.create(256);
  readonly #wire: Wire<Qp>;
  readonly #timer = TimerFd.create();
  readonly #watch: FdWatch;
  readonly #qps = new Map<number, Qp>();
  /** QPs that have a link, or are being connected. */
  readonly #linked = new Set<Qp>();
  /** QPs with something to do at the next occasion. */
  readonly #kicked = new WorkList<Qp>(marks.kicked);
  /** QPs whose links stopped to give others their turn. No event tells of what they left. */
  readonly #again = new Set<Qp>();
  /** QPs whose acknowledgements wait. */
  readonly #owing = new WorkList<Qp>(marks.owing);
  #pollsOwing = 0;
  /** The event loop will be idle some time, and sends acknowledgements then. */
  #isIdleAwaited = false;
  readonly #scheduled = new Map<object, Scheduled>();
  /** No action is due before this; the timer is set for it. */
  #nextNs = Number.POSITIVE_INFINITY;
  readonly #handlers = new Map<number, (events: number) => void>();
  #nextToken = 1;
  #polls = 0;
  #isMoving = false;
  #isClosed = false;
  #listener: (event: DeviceEvent) => void = () => {};

  constructor(info: DeviceInfo, faults: FaultPlan | undefined, makeWire: (host: WireHost<Qp>) => Wire<Qp>) {
    this.info = info;
    this.faults = faults;
    this.regions = new RegionTable(() => this.revoked());
    this.poller.add(this.#timer.fd, pollEvents.in, TIMER_TOKEN);
    this.#wire = makeWire(this);
    // The event loop of Node drives the device when the program does not poll, without keeping the
    // process alive.
    this.#watch = FdWatch.start(this.poller.fd, () => this.attend());
  }

  ports(): readonly PortInfo[] {
    const { gid, lid, mtu } = this.#wire;
    const mtus = { maxMtu: 4096, activeMtu: mtu } as const;
    return [{ number: 1, state: 'ACTIVE', lid, ...mtus, gids: [gid], linkLayer: this.info.transport }];
  }

  onEvent(listener: (event: DeviceEvent) => void): void {
    this.#listener = listener;
  }

  createPd(): ProviderPd {
    const pd = {};
    return {
      registerMr: (spec: MrSpec): ProviderMr => this.regions.add(pd, spec),
      createSrq: (spec: SrqSpec): ProviderSrq =>
        new ReceiveQueue(pd, spec.requests, spec.maxSge, (srq) => this.#announce({ kind: 'srqLimit', srq })),
      createQp: (spec: QpSpec): ProviderQp => this.#createQp(pd, spec),
      createAh: (path: PathTo): ProviderAh => this.#wire.createAh(path),
      close: () => {},
    };
  }

  #createQp(pd: object, spec: QpSpec): Qp {
    const number = this.#unusedQpNumber();
    const qp = this.#wire.createQp(this, number, pd, spec);
    this.#qps.set(number, qp);
    return qp;
  }

  /** 24 bits, not guessable, and never one of the two that are special. */
  #unusedQpNumber(): number {
    for (;;) {
      const number = randomBytes(3).readUIntBE(0, 3);
      if (number > 1 && number < 0xff_ffff && !this.#qps.has(number)) return number;
    }
  }

  createChannel(): ProviderChannel {
    return new DrivenChannel(this.poller.fd, () => this.attend());
  }

  createCq(spec: CqSpec): SoftCq {
    return new SoftCq(this, spec.entries, spec.channel as DrivenChannel | undefined);
  }

  close(): void {
    if (this.#isClosed) return;
    for (const qp of this.#qps.values()) qp.close();
    this.#isClosed = true;
    this.#watch.close();
    this.#wire.close();
    this.#timer.close();
    this.poller.close();
  }

  // For pollers: nothing here makes a system call unless it is due.
  progress(): void {
    if (this.#isMoving || this.#isClosed) return;
    this.#isMoving = true;
    try {
      this.#wire.receive();
      for (const qp of this.#linked) {
        if (qp.mayReceive) this.#pump(qp);
      }
    } finally {
      this.#isMoving = false;
    }
    if (this.#again.size > 0) {
      for (const qp of this.#again) this.#kicked.add(qp);
      this.#again.clear();
    }
    this.#runKicked();
    if (!this.#owing.isEmpty && ++this.#pollsOwing >= POLLS_AN_ACK) this.#acknowledge();
    if (this.#wire.needsEvents || ++this.#polls % POLLS_A_DESCRIPTOR_POLL === 0) this.#pollDescriptors();
    if (this.#scheduled.size > 0) this.#runScheduled();
  }

  prepareSleep(): void {
    this.#acknowledge();
    if (this.#isClosed || this.#isQuiet()) return;
    // Something came in meanwhile, so the program must not sleep.
    this.progress();
    this.#comeBackUnlessQuiet();
  }

  /** Polls everything, and asks to be woken by what comes next. */
  attend(): void {
    if (this.#isClosed) return;
    // Otherwise `progress` polls them.
    if (!this.#wire.needsEvents) this.#pollDescriptors();
    this.progress();
    for (let turn = 0; turn < 4 && !this.#isQuiet(); turn++) this.progress();
    this.#comeBackUnlessQuiet();
  }

  /** Asks to be woken by whatever comes next. False when something is there already. */
  #isQuiet(): boolean {
    return this.#wire.sleep() && this.#again.size === 0;
  }

  /** Lets others have their turn, and wakes this device by its timer. */
  #comeBackUnlessQuiet(): void {
    if (!this.#isClosed && !this.#isQuiet()) this.schedule(this.#again, 1, () => {});
  }

  #pollDescriptors(): void {
    // An event's listener may have closed the device.
    if (this.#isClosed) return;
    const count = this.poller.wait(0);
    for (let index = 0; index < count && !this.#isClosed; index++) {
      const token = this.poller.token(index);
      if (token === TIMER_TOKEN) this.#timer.take();
      else this.#handlers.get(token)?.(this.poller.events(index));
    }
    this.#runKicked();
    if (this.#scheduled.size > 0) this.#runScheduled();
  }

  // WireHost

  watch(fd: number, events: number, handler: (events: number) => void): number {
    const token = this.#nextToken++;
    this.poller.add(fd, events, token);
    this.#handlers.set(token, handler);
    return token;
  }

  unwatch(fd: number, token: number): void {
    if (!this.#handlers.delete(token) || this.#isClosed) return;
    this.poller.remove(fd);
  }

  qp(number: number): Qp | undefined {
    return this.#qps.get(number);
  }

  // QpOwner

  establish(qp: Qp): void {
    if (this.#wire.hasLinks) this.#linked.add(qp);
    this.#wire.establish(qp);
  }

  abandon(qp: Qp): void {
    this.#linked.delete(qp);
    this.#kicked.remove(qp);
    this.#owing.remove(qp);
    this.#again.delete(qp);
    this.unschedule(qp);
    this.#wire.abandon(qp);
  }

  kick(qp: Qp): void {
    if (!qp.isConnected) {
      this.#wire.wanted(qp);
      return;
    }
    this.#kicked.add(qp);
    this.#runKicked();
  }

  /** One action at a time for each key. */
  schedule(key: object, ns: number, action: () => void): void {
    const atNs = monotonicNs() + ns;
    this.#scheduled.set(key, { atNs, action });
    if (atNs < this.#nextNs) this.#setTimer(atNs);
  }

  unschedule(key: object): void {
    this.#scheduled.delete(key);
  }

  fatal(qp: Qp, reason: string): void {
    // Regions that its peer has mapped must be asked for again, and are refused then.
    this.revoked();
    this.#announce({ kind: 'qpFatal', qpNumber: qp.number, reason });
  }

  revoked(): void {
    this.#wire.revoked();
  }

  counters(): Readonly<Record<string, number>> {
    return this.#wire.counters();
  }

  remove(qp: Qp): void {
    this.#qps.delete(qp.number);
    this.abandon(qp);
  }

  cqOverrun(cq: SoftCq): void {
    this.#announce({ kind: 'cqOverrun', cq });
    for (const qp of this.#qps.values()) {
      if (qp.spec.sendCq === cq || qp.spec.receiveCq === cq) qp.fail('its CQ is full');
    }
  }

  /** Listeners read memory, and may close it, so what was received must be in its place first. */
  #announce(event: DeviceEvent): void {
    this.#wire.settle();
    this.#listener(event);
  }

  #runKicked(): void {
    if (this.#isMoving) return;
    this.#isMoving = true;
    try {
      // QPs that are kicked meanwhile are pumped as well; a link that has more is pumped at the
      // next occasion.
      for (let qp = this.#kicked.shift(); qp !== undefined; qp = this.#kicked.shift()) this.#pump(qp);
      this.#wire.flush();
    } finally {
      this.#isMoving = false;
    }
  }

  /** Sends the acknowledgements that wait. */
  #acknowledge(): void {
    if (this.#isClosed || this.#isMoving || this.#owing.isEmpty) return;
    this.#pollsOwing = 0;
    this.#isMoving = true;
    try {
      for (let qp = this.#owing.shift(); qp !== undefined; qp = this.#owing.shift()) this.#pump(qp, true);
    } finally {
      this.#isMoving = false;
    }
  }

  /** A program that does not poll again leaves its acknowledgements to the event loop. */
  #owe(qp: Qp): void {
    this.#owing.add(qp);
    if (this.#isIdleAwaited) return;
    this.#isIdleAwaited = true;
    setImmediate(() => {
      this.#isIdleAwaited = false;
      this.#acknowledge();
    }).unref();
  }

  #pump(qp: Qp, mustAck = false): void {
    const nowNs = this.faults === undefined ? 0 : monotonicNs();
    const hasMore = mustAck ? qp.acknowledge(nowNs) : qp.pump(nowNs);
    if (!mustAck && qp.owesAck) this.#owe(qp);
    if (hasMore) {
      this.#again.add(qp);
      this.schedule(this.#again, 1, () => {});
    }
    const { heldUntilNs } = qp;
    if (heldUntilNs > nowNs) this.schedule(qp.queue, heldUntilNs - nowNs, () => this.kick(qp));
  }

  #runScheduled(): void {
    const nowNs = monotonicNs();
    if (nowNs < this.#nextNs) return;
    this.#nextNs = Number.POSITIVE_INFINITY;
    for (const [key, { atNs, action }] of this.#scheduled) {
      if (atNs > nowNs) continue;
      this.#scheduled.delete(key);
      action();
    }
    let nextNs = Number.POSITIVE_INFINITY;
    for (const { atNs } of this.#scheduled.values()) nextNs = Math.min(nextNs, atNs);
    if (nextNs !== Number.POSITIVE_INFINITY) this.#setTimer(nextNs);
  }

  /**
   * The timer is set only for something earlier: an action that was unscheduled or put off costs
   * reading the clock, not a system call.
   */
  #setTimer(atNs: number): void {
    if (this.#isClosed) return;
    this.#nextNs = atNs;
    this.#timer.set(Math.max(1, atNs - monotonicNs()));
  }
}
