// The soft device: its objects, what it looks for, and the one place where things move on.

import { randomBytes } from 'node:crypto';
import { UnsupportedError } from '../../errors.ts';
import { FdWatch, monotonicNs, Poller, pollEvents, TimerFd } from '../../native/index.ts';
import type {
  CqSpec,
  DeviceAttributes,
  DeviceEvent,
  DeviceInfo,
  MrSpec,
  PortInfo,
  ProviderChannel,
  ProviderDevice,
  ProviderMr,
  ProviderPd,
  ProviderQp,
  ProviderSrq,
  QpSpec,
  SrqSpec,
} from '../../verbs/index.ts';
import { SoftChannel } from './channel.ts';
import { type CompletionOwner, SoftCq } from './completion-queue.ts';
import type { FaultPlan } from './fault-plan.ts';
import { MAX_MESSAGE_BYTES } from './frame.ts';
import { type QpOwner, SoftQp } from './qp.ts';
import { ReceiveQueue } from './receive-queue.ts';
import { RegionTable } from './region.ts';
import type { Wire, WireHost } from './wire.ts';

export const softAttributes: DeviceAttributes = {
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
};

/** How often a device that is only polled looks at its descriptors: they tell of new peers and of dead ones. */
const POLLS_A_LOOK = 64;
const TIMER_TOKEN = 0xffff_ffff;

interface Scheduled {
  readonly atNs: number;
  readonly action: () => void;
}

export class SoftDevice implements ProviderDevice, QpOwner, CompletionOwner, WireHost {
  readonly info: DeviceInfo;
  readonly attributes = softAttributes;
  readonly regions: RegionTable;
  readonly faults: FaultPlan | undefined;
  readonly poller = Poller.create(256);
  readonly #wire: Wire;
  readonly #timer = TimerFd.create();
  readonly #watch: FdWatch;
  readonly #qps = new Map<number, SoftQp>();
  /** QPs that have a link, or look for one. */
  readonly #linked = new Set<SoftQp>();
  /** QPs with something to do at the next occasion. */
  readonly #kicked = new Set<SoftQp>();
  /** QPs whose links stopped for the others' sake. No event tells of what they left. */
  readonly #again = new Set<SoftQp>();
  readonly #scheduled = new Map<object, Scheduled>();
  readonly #handlers = new Map<number, (events: number) => void>();
  #nextToken = 1;
  #polls = 0;
  #isMoving = false;
  #isClosed = false;
  #listener: (event: DeviceEvent) => void = () => {};

  constructor(info: DeviceInfo, faults: FaultPlan | undefined, makeWire: (host: WireHost) => Wire) {
    this.info = info;
    this.faults = faults;
    this.regions = new RegionTable(() => this.revoked());
    this.poller.add(this.#timer.fd, pollEvents.in, TIMER_TOKEN);
    this.#wire = makeWire(this);
    // Moves on whenever the thread has nothing else to do, without keeping the process alive.
    this.#watch = FdWatch.start(this.poller.fd, () => this.attend());
  }

  ports(): readonly PortInfo[] {
    const { gid, lid } = this.#wire;
    const mtus = { maxMtu: 4096, activeMtu: 4096 } as const;
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
        new ReceiveQueue(pd, spec.requests, spec.maxSge, (srq) => this.#listener({ kind: 'srqLimit', srq })),
      createQp: (spec: QpSpec): ProviderQp => this.#createQp(pd, spec),
      close: () => {},
    };
  }

  #createQp(pd: object, spec: QpSpec): SoftQp {
    if (spec.type !== 'RC') throw new UnsupportedError(`${this.info.name} has RC queue pairs only`);
    const number = this.#unusedQpNumber();
    const qp = new SoftQp(this, number, pd, spec);
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
    return new SoftChannel(this.poller.fd, () => this.attend());
  }

  createCq(spec: CqSpec): SoftCq {
    return new SoftCq(this, spec.entries, spec.channel as SoftChannel | undefined);
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
      for (const qp of this.#linked) {
        if (qp.link?.mayReceive === true) this.#pump(qp);
      }
    } finally {
      this.#isMoving = false;
    }
    for (const qp of this.#again) this.#kicked.add(qp);
    this.#again.clear();
    this.#runKicked();
    if (this.#wire.needsEvents || ++this.#polls % POLLS_A_LOOK === 0) this.#look();
    if (this.#scheduled.size > 0) this.#runScheduled();
  }

  prepareSleep(): void {
    if (this.#isClosed || this.#isQuiet()) return;
    // Something came in meanwhile: nobody must sleep on that.
    this.progress();
    this.#comeBackUnlessQuiet();
  }

  /** Something may have happened: looks at everything, and asks to be woken by the next. */
  attend(): void {
    if (this.#isClosed) return;
    this.#look();
    this.progress();
    for (let turn = 0; turn < 4 && !this.#isQuiet(); turn++) this.progress();
    this.#comeBackUnlessQuiet();
  }

  /** Asks to be woken by whatever comes next. False when something is there already. */
  #isQuiet(): boolean {
    return this.#wire.sleep() && this.#again.size === 0;
  }

  /** Others get their turn; the timer sees to it that we get ours. */
  #comeBackUnlessQuiet(): void {
    if (!this.#isClosed && !this.#isQuiet()) this.schedule(this.#again, 1, () => {});
  }

  #look(): void {
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

  qp(number: number): SoftQp | undefined {
    return this.#qps.get(number);
  }

  // QpOwner

  establish(qp: SoftQp): void {
    this.#linked.add(qp);
    this.#wire.establish(qp);
  }

  abandon(qp: SoftQp): void {
    this.#linked.delete(qp);
    this.#kicked.delete(qp);
    this.#again.delete(qp);
    this.unschedule(qp);
    this.#wire.abandon(qp);
  }

  kick(qp: SoftQp): void {
    if (qp.link === undefined) {
      this.#wire.wanted(qp);
      return;
    }
    this.#kicked.add(qp);
    this.#runKicked();
  }

  /** One thing at a time for each key. */
  schedule(key: object, ns: number, action: () => void): void {
    this.#scheduled.set(key, { atNs: monotonicNs() + ns, action });
    this.#setTimer();
  }

  unschedule(key: object): void {
    this.#scheduled.delete(key);
  }

  fatal(qp: SoftQp, reason: string): void {
    // What its peer has mapped must be asked for again, and then is refused.
    this.revoked();
    this.#listener({ kind: 'qpFatal', qpNumber: qp.number, reason });
  }

  revoked(): void {
    this.#wire.revoked();
  }

  remove(qp: SoftQp): void {
    this.#qps.delete(qp.number);
    this.abandon(qp);
  }

  cqOverrun(cq: SoftCq): void {
    this.#listener({ kind: 'cqOverrun', cq });
    for (const qp of this.#qps.values()) {
      if (qp.spec.sendCq === cq || qp.spec.receiveCq === cq) qp.fail('its CQ is full');
    }
  }

  #runKicked(): void {
    if (this.#isMoving) return;
    this.#isMoving = true;
    try {
      // What is kicked meanwhile is done, too; a link that has more comes again at the next occasion.
      for (const qp of this.#kicked) {
        this.#kicked.delete(qp);
        this.#pump(qp);
      }
    } finally {
      this.#isMoving = false;
    }
  }

  #pump(qp: SoftQp): void {
    const { link } = qp;
    if (link === undefined) return;
    const nowNs = this.faults === undefined ? 0 : monotonicNs();
    const hasMore = link.pump(nowNs);
    if (hasMore) {
      this.#again.add(qp);
      this.schedule(this.#again, 1, () => {});
    }
    const { heldUntilNs } = link;
    if (heldUntilNs > nowNs) this.schedule(link, heldUntilNs - nowNs, () => this.kick(qp));
  }

  #runScheduled(): void {
    const nowNs = monotonicNs();
    for (const [key, { atNs, action }] of this.#scheduled) {
      if (atNs > nowNs) continue;
      this.#scheduled.delete(key);
      action();
    }
    this.#setTimer();
  }

  #setTimer(): void {
    if (this.#isClosed) return;
    let nextNs = Number.POSITIVE_INFINITY;
    for (const { atNs } of this.#scheduled.values()) nextNs = Math.min(nextNs, atNs);
    this.#timer.set(nextNs === Number.POSITIVE_INFINITY ? 0 : Math.max(1, nextNs - monotonicNs()));
  }
}
