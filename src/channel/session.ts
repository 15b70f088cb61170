// A session: keeps a link connected. Offers and accepts transports, falls back to the next device, and gives up in time.

import { randomBytes } from 'node:crypto';
import { MillraceError, UsageError } from '../errors.ts';
import type { Watched } from '../lane/index.ts';
import { monotonicNs, pollEvents, type Socket } from '../native/index.ts';
import type { Device } from '../verbs/index.ts';
import { type Accept, decodeLinkMessage, encodeLinkMessage, type LinkMessage, type Offer } from './handshake.ts';
import type { Geometry } from './layout.ts';
import { regionBytes } from './layout.ts';
import { Link, type LinkEvents, type LinkOptions, type ReadState } from './link.ts';
import type { LaneParts } from './parts.ts';
import type { StreamAbout } from './stream.ts';
import { Transport, type TransportOptions } from './transport.ts';

export interface SessionOptions extends Omit<LinkOptions, 'salt'>, Omit<TransportOptions, 'slotBytes'> {
  /** In order of preference. */
  readonly devices: readonly string[];
  /** Names this machine and where its peers meet, for wires in shared memory. */
  readonly place?: string;
  /** Streams wait so long for a peer that cannot be reached. */
  readonly recoveryNs: number;
  /** A link whose pings stay unanswered so long is broken. */
  readonly deadNs: number;
}

export type SessionState = 'down' | 'connecting' | 'up' | 'recovering';

export interface SessionEvents {
  /** By the control connection; false when that is down. */
  send(body: object): boolean;
  openDevice(name: string): Device;
  onCall: LinkEvents['onCall'];
  onSocketClosed: LinkEvents['onSocketClosed'];
  onState(state: SessionState, reason: string): void;
  /** The peer breaks the rules: its context is to be closed. */
  onLie(reason: string): void;
  /** Something is under way that needs Node's loop. */
  wait(work: Promise<void>): void;
}

/** How long the other side may take to answer an offer, at least: a device is opened for it. */
const ANSWER_NS = 3_000_000_000;
/** Failures of a device, one after the other, until the next is tried. */
const MAX_FAILURES = 2;
/** Rings of peers that want them longer than ours are refused from here on. */
const MAX_REGION_BYTES = 64 * 1024 * 1024;

export class Session implements Watched, LinkEvents, Disposable {
  readonly isCaller: boolean;
  readonly #parts: LaneParts;
  readonly #options: SessionOptions;
  readonly #events: SessionEvents;
  #link: Link | undefined;
  #name = '';
  #state: SessionState = 'down';
  #transport: Transport | undefined;
  /** Dropped, and to be closed before another is made. */
  readonly #leaving: Transport[] = [];
  #token = -1;
  #bellToken = -1;
  /** The lane looks at all rings after each event: that it was woken is enough. */
  readonly #rung: Watched = { onEvents: () => {} };
  #attempt = 0;
  #deviceIndex = 0;
  #failures = 0;
  #isPeerUp = false;
  #isDue = false;
  /** The link was up: the peer knows it, and to go on means to resume it. */
  #hasBegun = false;
  #isRung = false;
  #deadlineNs = Number.POSITIVE_INFINITY;
  /** Since when the link is not up, though it was. */
  #brokenNs = Number.POSITIVE_INFINITY;
  /** When it broke before it came up last: it may not have worked at all. */
  #brokenBeforeNs = Number.POSITIVE_INFINITY;
  #beganNs = 0;
  /** What the peer said it has read when we were connected. */
  #peerRead: ReadState = { position: 0, sequence: 1 };
  recoveries = 0;

  constructor(parts: LaneParts, isCaller: boolean, options: SessionOptions, events: SessionEvents) {
    this.#parts = parts;
    this.isCaller = isCaller;
    this.#options = options;
    this.#events = events;
  }

  get link(): Link | undefined {
    return this.#link;
  }

  get state(): SessionState {
    return this.#state;
  }

  get wire(): string {
    return this.#transport?.wire ?? '';
  }

  /** The control connection to the peer is up. `isSame`: the daemon there is the one that we know. */
  peerUp(isSame: boolean): void {
    this.#isPeerUp = true;
    if (!isSame) this.#drop('the peer started again');
    if (this.#link?.isUp === true) return;
    if (this.isCaller) this.#offer();
    // What we said when it broke may have been lost.
    else if (this.#isBroken) this.#say({ kind: 'broken', attempt: this.#attempt, reason: 'it broke meanwhile' });
  }

  peerDown(): void {
    this.#isPeerUp = false;
  }

  /** False when the connection cannot be carried. */
  open(socket: Socket, about: StreamAbout): boolean {
    return this.#link !== undefined && this.#state !== 'connecting' && this.#link.open(socket, about);
  }

  turn(): number {
    const link = this.#link;
    if (link === undefined) return 0;
    const isPolling = this.#isRung;
    this.#isRung = false;
    return link.turn(isPolling);
  }

  prepareSleep(): boolean {
    return this.#link?.prepareSleep() ?? true;
  }

  /** Several times a second: what is due by the clock. */
  beat(isHeartbeat: boolean): void {
    const nowNs = monotonicNs();
    if (this.#brokenNs + this.#options.recoveryNs < nowNs) this.#drop('the peer did not come back');
    if (nowNs > this.#deadlineNs) this.#failed('the peer did not answer the offer');
    else if (this.#isDue && this.#isPeerUp) this.#offer();
    const link = this.#link;
    if (link?.isUp !== true) return;
    if (nowNs - link.heardNs > this.#options.deadNs) this.#failed('pings stay unanswered');
    else if (isHeartbeat) link.beat(nowNs);
  }

  /** What the peer's lane says; hostile until checked. */
  hear(body: object): void {
    let message: LinkMessage;
    try {
      message = decodeLinkMessage(body);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      this.#events.onLie(`its handshake makes no sense: ${error.message}`);
      return;
    }
    if (message.kind === 'offer') this.#onOffer(message);
    else if (message.attempt !== this.#attempt) return;
    else if (message.kind === 'accept') this.#onAccept(message);
    else if (message.kind === 'ready') this.#onReady();
    else if (message.kind === 'broken') this.#onPeerBroken(message.reason);
    else if (message.kind === 'closed') this.#drop(`the peer ended it: ${message.reason}`);
    else if (message.kind === 'reject' && this.isCaller) this.#onReject(message.code, message.reason);
  }

  /** For tests, and for what breaks on purpose. */
  breakTransport(): void {
    this.#transport?.breakQps();
    this.#isRung = true;
  }

  /** Ends all streams. */
  close(reason: string): void {
    if (this.#link !== undefined) this.#say({ kind: 'closed', attempt: this.#attempt, reason });
    this.#drop(reason);
    this.#isDue = false;
  }

  [Symbol.dispose](): void {
    this.close('closed');
  }

  // The transport's channel has something.
  onEvents(): void {
    this.#isRung = true;
    this.#transport?.channel.take();
    // Before the link is up nobody else looks.
    if (this.#link?.transport === undefined) this.#transport?.poll();
  }

  // LinkEvents

  get onCall(): LinkEvents['onCall'] {
    return this.#events.onCall;
  }

  get onSocketClosed(): LinkEvents['onSocketClosed'] {
    return this.#events.onSocketClosed;
  }

  onBroken(reason: string, isLie: boolean): void {
    if (!isLie) {
      this.#failed(reason);
      return;
    }
    this.#drop(`the peer broke the rules: ${reason}`);
    this.#events.onLie(reason);
  }

  // The caller's part

  #offer(): void {
    this.#isDue = false;
    const isResumed = this.#hasBegun;
    if (this.#link === undefined) {
      this.#name = randomBytes(16).toString('hex');
      this.#link = new Link(this.#parts, true, { ...this.#options, salt: saltOf(this.#name) }, this);
    }
    const link = this.#link;
    this.#setState(this.#brokenNs < Number.POSITIVE_INFINITY ? 'recovering' : 'connecting', '');
    this.#attempt++;
    this.#closeLeaving();
    const transport = this.#create(link, this.#options.devices[this.#deviceIndex] ?? '', this.#options);
    if (typeof transport === 'string') {
      this.#failed(transport);
      return;
    }
    this.#deadlineNs = monotonicNs() + Math.max(ANSWER_NS, this.#options.deadNs);
    const { geometry } = link.options;
    const isSent = this.#say({
      kind: 'offer',
      session: this.#name,
      isResumed,
      attempt: this.#attempt,
      wire: kindOf(transport.wire),
      place: this.#options.place ?? '',
      geometry,
      transport: transport.offer,
      read: link.readState,
    });
    if (!isSent) this.#later();
  }

  #onAccept(accept: Accept): void {
    if (!this.isCaller || this.#deadlineNs === Number.POSITIVE_INFINITY) return;
    if (!this.#isRegionWhole(accept.transport)) return;
    this.#peerRead = accept.read;
    // The peer has stopped writing, and begins again when it hears that we are ready.
    this.#link?.forgetUnread();
    this.#connect(accept.transport, () => {
      this.#say({ kind: 'ready', attempt: this.#attempt });
      this.#begin();
    });
  }

  #onReject(code: string, reason: string): void {
    if (code === 'session') {
      this.#drop('the peer does not know the session any more');
      this.#offer();
      return;
    }
    this.#failed(`the peer refused: ${reason}`, code === 'device');
  }

  #onPeerBroken(reason: string): void {
    if (this.isCaller) this.#failed(`at the peer: ${reason}`);
  }

  // The other side's part

  #onOffer(offer: Offer): void {
    if (this.isCaller) {
      this.#events.onLie('it called, though it is to be called');
      return;
    }
    const isKnown = this.#link !== undefined && this.#name === offer.session;
    // Of a session, each offer is another one.
    if (isKnown && offer.attempt <= this.#attempt) return;
    this.#attempt = offer.attempt;
    if (offer.isResumed && !isKnown) {
      this.#say({ kind: 'reject', attempt: offer.attempt, code: 'session', reason: 'not known here' });
      return;
    }
    if (!isKnown) this.#drop('the peer begins anew');
    // It has noticed before us.
    if (this.#link?.isUp === true) this.#brokenNs = monotonicNs();
    this.#dropTransport();
    this.#closeLeaving();
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    const devices = this.#options.devices.filter((name) => kindOf(wireOf(name)) === offer.wire);
    if (offer.wire === 'shm' && offer.place !== (this.#options.place ?? '')) {
      // At once: to find out by trying takes seconds.
      const reason = 'shared memory needs one machine and one device.runtimeDir';
      this.#say({ kind: 'reject', attempt: offer.attempt, code: 'device', reason });
      return;
    }
    if (devices.length === 0) {
      const reason = `no device here for the wire ${offer.wire}`;
      this.#say({ kind: 'reject', attempt: offer.attempt, code: 'device', reason });
      return;
    }
    const limit = Math.max(MAX_REGION_BYTES, regionBytes(this.#options.geometry));
    if (regionBytes(offer.geometry) > limit || (isKnown && !isSame(offer.geometry, this.#link?.options.geometry))) {
      this.#events.onLie(`rings of ${offer.geometry.slots} slots`);
      return;
    }
    const dataQps = offer.transport.qps.length - 1;
    if (!this.#isRegionWhole(offer.transport, offer.geometry)) return;
    this.#name = offer.session;
    const options = { ...this.#options, geometry: offer.geometry, dataQps, salt: saltOf(this.#name) };
    this.#link ??= new Link(this.#parts, false, options, this);
    this.#setState(this.#brokenNs < Number.POSITIVE_INFINITY ? 'recovering' : 'connecting', '');
    let transport: Transport | string = '';
    for (const device of devices) {
      transport = this.#create(this.#link, device, { ...this.#options, dataQps });
      // A card that is not there may have a soft device beside it that speaks the same.
      if (typeof transport !== 'string') break;
    }
    if (typeof transport === 'string') {
      this.#say({ kind: 'reject', attempt: offer.attempt, code: 'device', reason: transport });
      return;
    }
    this.#peerRead = offer.read;
    this.#deadlineNs = monotonicNs() + Math.max(ANSWER_NS, this.#options.deadNs);
    try {
      transport.connect(offer.transport);
    } catch (error) {
      this.#say({ kind: 'reject', attempt: offer.attempt, code: 'device', reason: messageOf(error) });
      this.#dropTransport();
      return;
    }
    // The peer has stopped writing, and begins again when it hears our answer.
    this.#link.forgetUnread();
    const { readState: read } = this.#link;
    this.#say({ kind: 'accept', attempt: offer.attempt, transport: transport.offer, read });
  }

  #onReady(): void {
    if (this.isCaller || this.#transport === undefined || this.#link?.isUp === true) return;
    this.#map(() => this.#begin());
  }

  // Both

  /** What is written in place is written at the same offsets as here. */
  #isRegionWhole({ region }: Accept['transport'], geometry = this.#options.geometry): boolean {
    if (region.sizeBytes === regionBytes(geometry)) return true;
    this.#events.onLie(`a region of ${region.sizeBytes} bytes`);
    return false;
  }

  #connect(remote: Accept['transport'], then: () => void): void {
    try {
      this.#transport?.connect(remote);
    } catch (error) {
      this.#failed(messageOf(error));
      return;
    }
    this.#map(then);
  }

  /** Where the peer's memory can be mapped, it is. */
  #map(then: () => void): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    if (transport.wire !== 'shm') {
      then();
      return;
    }
    const done = async (): Promise<void> => {
      try {
        await transport.map();
        if (this.#transport === transport) then();
      } catch (error) {
        if (this.#transport === transport) this.#failed(messageOf(error));
      }
    };
    this.#events.wait(done());
  }

  #begin(): void {
    const [link, transport] = [this.#link, this.#transport];
    if (link === undefined || transport === undefined) return;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    if (!link.resume(transport, this.#peerRead)) {
      this.onBroken('it says it has read what was never written', true);
      return;
    }
    this.#hasBegun = true;
    this.#beganNs = monotonicNs();
    link.heardNs = this.#beganNs;
    this.#brokenBeforeNs = this.#brokenNs;
    if (this.#brokenNs < Number.POSITIVE_INFINITY) this.recoveries++;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    this.#setState('up', '');
    const { bell } = transport;
    if (bell !== undefined)
      this.#bellToken = this.#parts.lane.watch(bell.fd, pollEvents.in | pollEvents.edge, this.#rung);
    // What waited since.
    this.#isRung = true;
    this.#parts.lane.again({ resume: () => {} });
  }

  /** The transport, or why there is none. */
  #create(link: Link, device: string, given: Omit<TransportOptions, 'slotBytes'>): Transport | string {
    this.#dropTransport();
    const options = { ...given, slotBytes: link.options.geometry.slotBytes };
    try {
      const transport = new Transport(this.#events.openDevice(device), link.memory, link.incoming.number, options, {
        onNotice: (position) => link.onNotice(position),
        onControlNotice: () => link.onControlNotice(),
        onFailure: (reason) => {
          if (this.#transport === transport) this.#failed(reason);
        },
      });
      this.#transport = transport;
      this.#token = this.#parts.lane.watch(transport.channel.fd, pollEvents.in, this);
      return transport;
    } catch (error) {
      return `${device}: ${messageOf(error)}`;
    }
  }

  #dropTransport(): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    this.#transport = undefined;
    this.#link?.suspend();
    this.#parts.lane.unwatch(transport.channel.fd, this.#token);
    if (transport.bell !== undefined && this.#bellToken >= 0) {
      this.#parts.lane.unwatch(transport.bell.fd, this.#bellToken);
      this.#bellToken = -1;
    }
    this.#leaving.push(transport);
    // Not here: it may be the one that calls us.
    this.#parts.lane.again({ resume: () => this.#closeLeaving() });
  }

  /** From now on nothing that was on its way arrives. */
  #closeLeaving(): void {
    for (const transport of this.#leaving.splice(0)) transport.close();
  }

  #failed(reason: string, isDevice = false): void {
    const wasUp = this.#link?.isUp === true;
    const hasWorked = wasUp && this.#hasWorked;
    this.#dropTransport();
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    // A wire that comes up, carries nothing and breaks is no better than one that does not come up.
    if (wasUp) this.#brokenNs = hasWorked ? monotonicNs() : Math.min(this.#brokenBeforeNs, monotonicNs());
    if (hasWorked) this.#failures = 0;
    if (this.#link !== undefined) this.#setState(wasUp || this.#isBroken ? 'recovering' : 'connecting', reason);
    if (!this.isCaller) {
      this.#say({ kind: 'broken', attempt: this.#attempt, reason });
      return;
    }
    if (++this.#failures >= MAX_FAILURES || isDevice) {
      this.#failures = 0;
      this.#deviceIndex = (this.#deviceIndex + 1) % this.#options.devices.length;
    }
    this.#later();
    // The first try at once.
    if (wasUp && this.#isPeerUp) this.#parts.lane.again({ resume: () => this.#retry() });
  }

  #retry(): void {
    if (this.#isDue) this.#offer();
  }

  /** Since it came up, the peer has read something of ours and said so. */
  get #hasWorked(): boolean {
    const link = this.#link;
    if (link === undefined) return false;
    return link.heardNs > this.#beganNs || link.outgoing.peerPosition !== this.#peerRead.position;
  }

  get #isBroken(): boolean {
    return this.#brokenNs < Number.POSITIVE_INFINITY;
  }

  #later(): void {
    this.#dropTransport();
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#isDue = true;
  }

  #drop(reason: string): void {
    const link = this.#link;
    this.#dropTransport();
    this.#link = undefined;
    this.#hasBegun = false;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    this.#deviceIndex = 0;
    this.#failures = 0;
    if (link === undefined) return;
    link.close();
    // After the transport, which is closed then, too.
    this.#parts.lane.again({ resume: () => link.free() });
    this.#setState('down', reason);
    if (this.isCaller) this.#isDue = true;
  }

  #say(message: LinkMessage): boolean {
    return this.#events.send(encodeLinkMessage(message));
  }

  #setState(state: SessionState, reason: string): void {
    if (state === this.#state && reason === '') return;
    this.#state = state;
    this.#events.onState(state, reason);
  }
}

/** The name is drawn by chance, and only the two peers know it. */
function saltOf(name: string): number {
  // Of 30 bits: with more, what is read would be no small integer, and each look would allocate.
  return Number.parseInt(name.slice(0, 8), 16) & 0x3fff_ffff;
}

/** Devices that understand each other: a RoCEv2 card and the soft device that speaks the same. */
function kindOf(wire: string): string {
  return wire === 'RoCEv2' ? 'roce' : wire;
}

/** What a device of this name carries its bytes with, as far as the name tells. */
function wireOf(device: string): string {
  return device.startsWith('soft-') ? device.slice('soft-'.length) : 'RoCEv2';
}

function isSame(one: Geometry, other: Geometry | undefined): boolean {
  if (other === undefined) return false;
  return one.slotBytes === other.slotBytes && one.slots === other.slots && one.maxRecordSlots === other.maxRecordSlots;
}

function messageOf(error: unknown): string {
  if (error instanceof MillraceError) return error.message;
  return error instanceof Error ? error.message : String(error);
}
