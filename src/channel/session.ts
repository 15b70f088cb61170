// A session: keeps a link connected, by one transport after the other, and gives up in time. Who calls and who is called
// differ in how they come by a transport.

import { UsageError } from '../errors.ts';
import type { Watched } from '../loop/index.ts';
import { monotonicNs, pollEvents, type Socket } from '../native/index.ts';
import type { Device } from '../verbs/index.ts';
import { type Accept, decodeLinkMessage, encodeLinkMessage, type LinkMessage } from './handshake.ts';
import { regionBytes } from './layout.ts';
import { Link, type LinkEvents, type LinkOptions, type ReadState } from './link.ts';
import type { LaneParts } from './link-context.ts';
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
  onProtocolError(reason: string): void;
  /** Something is under way that needs Node's loop. */
  wait(work: Promise<void>): void;
}

/** How long the other side may take to answer an offer, at least: a device is opened for it. */
const ANSWER_NS = 3_000_000_000;

export abstract class Session implements Watched, LinkEvents, Disposable {
  abstract readonly isDialer: boolean;
  protected readonly parts: LaneParts;
  protected readonly options: SessionOptions;
  protected readonly events: SessionEvents;
  /** Drawn by chance by the caller, and only the two peers know it. */
  protected name = '';
  /** The number of the offer that counts. */
  protected attempt = 0;
  /** The control connection is up. */
  protected isPeerUp = false;
  /** The link was up: the peer knows it, and to go on means to resume it. */
  protected hasBegun = false;
  /** What the peer said it has read when we were connected. */
  protected peerRead: ReadState = { position: 0, sequence: 1 };
  #link: Link | undefined;
  #state: SessionState = 'down';
  #transport: Transport | undefined;
  /** Dropped, and to be closed before another is made. */
  readonly #leaving: Transport[] = [];
  #token = -1;
  #doorbellToken = -1;
  /** The lane looks at all rings after each event: that it was woken is enough. */
  readonly #rung: Watched = { onEvents: () => {} };
  #isRung = false;
  #deadlineNs = Number.POSITIVE_INFINITY;
  /** Since when the link is not up, though it was. */
  #brokenNs = Number.POSITIVE_INFINITY;
  /** When it broke before it came up last: it may not have worked at all. */
  #brokenBeforeNs = Number.POSITIVE_INFINITY;
  #beganNs = 0;
  recoveries = 0;

  constructor(parts: LaneParts, options: SessionOptions, events: SessionEvents) {
    this.parts = parts;
    this.options = options;
    this.events = events;
  }

  /** The control connection is up, and the link is not. */
  protected abstract onPeerUp(): void;

  /** Something is due by the clock. */
  protected abstract onBeat(): void;

  /** What the peer says of the attempt that counts, or an offer. */
  protected abstract onMessage(message: LinkMessage): void;

  /** The transport has gone. `hasWorked`: it was up, and carried something. `isDevice`: the peer cannot use it at all. */
  protected abstract onFailed(reason: string, wasUp: boolean, hasWorked: boolean, isDevice: boolean): void;

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
    this.isPeerUp = true;
    if (!isSame) this.drop('the peer started again');
    if (this.#link?.isUp !== true) this.onPeerUp();
  }

  peerDown(): void {
    this.isPeerUp = false;
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
    if (this.#brokenNs + this.options.recoveryNs < nowNs) this.drop('the peer did not come back');
    if (nowNs > this.#deadlineNs) this.failed('the peer did not answer the offer');
    else this.onBeat();
    const link = this.#link;
    if (link?.isUp !== true) return;
    if (nowNs - link.heardNs > this.options.deadNs) this.failed('pings stay unanswered');
    else if (isHeartbeat) link.beat(nowNs);
  }

  /** What the peer's lane says; hostile until checked. */
  hear(body: object): void {
    let message: LinkMessage;
    try {
      message = decodeLinkMessage(body);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      this.events.onProtocolError(`its handshake makes no sense: ${error.message}`);
      return;
    }
    if (message.kind !== 'offer' && message.attempt !== this.attempt) return;
    if (message.kind === 'closed') this.drop(`the peer ended it: ${message.reason}`);
    else this.onMessage(message);
  }

  /** For tests, and for what breaks on purpose. */
  breakTransport(): void {
    this.#transport?.breakQps();
    this.#isRung = true;
  }

  /** Ends all streams. */
  close(reason: string): void {
    if (this.#link !== undefined) this.say({ kind: 'closed', attempt: this.attempt, reason });
    this.drop(reason);
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
    return this.events.onCall;
  }

  get onSocketClosed(): LinkEvents['onSocketClosed'] {
    return this.events.onSocketClosed;
  }

  onBroken(reason: string, isLie: boolean): void {
    if (!isLie) {
      this.failed(reason);
      return;
    }
    this.drop(`the peer broke the rules: ${reason}`);
    this.events.onProtocolError(reason);
  }

  // For both kinds

  protected get transport(): Transport | undefined {
    return this.#transport;
  }

  /** It was up, and is not. */
  protected get isBroken(): boolean {
    return this.#brokenNs < Number.POSITIVE_INFINITY;
  }

  /** The peer has noticed before us that it broke. */
  protected markBroken(): void {
    if (this.#link?.isUp === true) this.#brokenNs = monotonicNs();
  }

  protected get isAwaitingAnswer(): boolean {
    return this.#deadlineNs < Number.POSITIVE_INFINITY;
  }

  /** The peer has to say something in time, or has nothing to say. */
  protected awaitAnswer(isAwaited: boolean): void {
    const ns = Math.max(ANSWER_NS, this.options.deadNs);
    this.#deadlineNs = isAwaited ? monotonicNs() + ns : Number.POSITIVE_INFINITY;
  }

  /** What is written in place is written at the same offsets as here. */
  protected isRegionWhole({ region }: Accept['transport'], geometry = this.options.geometry): boolean {
    if (region.sizeBytes === regionBytes(geometry)) return true;
    this.events.onProtocolError(`a region of ${region.sizeBytes} bytes`);
    return false;
  }

  /** Where the peer's memory can be mapped, it is. */
  protected mapPeer(then: () => void): void {
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
        if (this.#transport === transport) this.failed(messageOf(error));
      }
    };
    this.events.wait(done());
  }

  /** The transport is connected at both ends. */
  protected begin(): void {
    const [link, transport] = [this.#link, this.#transport];
    if (link === undefined || transport === undefined) return;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    if (!link.resume(transport, this.peerRead)) {
      this.onBroken('it says it has read what was never written', true);
      return;
    }
    this.hasBegun = true;
    this.#beganNs = monotonicNs();
    link.heardNs = this.#beganNs;
    this.#brokenBeforeNs = this.#brokenNs;
    if (this.isBroken) this.recoveries++;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    this.#setState('up', '');
    const { bell } = transport;
    if (bell !== undefined)
      this.#doorbellToken = this.parts.lane.watch(bell.fd, pollEvents.in | pollEvents.edge, this.#rung);
    // What waited since.
    this.#isRung = true;
    this.parts.lane.again({ resume: () => {} });
  }

  /** The link, which is made if there is none. */
  protected linkOf(options: Omit<LinkOptions, 'salt'>): Link {
    const salt = saltOf(this.name);
    this.#link ??= new Link(this.parts, this.isDialer, { ...options, salt }, this);
    this.#setState(this.isBroken ? 'recovering' : 'connecting', '');
    return this.#link;
  }

  /** The transport, or why there is none. */
  protected create(link: Link, device: string, given: Omit<TransportOptions, 'slotBytes'>): Transport | string {
    this.dropTransport();
    const options = { ...given, slotBytes: link.options.geometry.slotBytes };
    try {
      const transport = new Transport(this.events.openDevice(device), link.memory, link.incoming.number, options, {
        onNotification: (position) => link.onNotification(position),
        onControlNotification: () => link.onControlNotification(),
        onFailure: (reason) => {
          if (this.#transport === transport) this.failed(reason);
        },
      });
      this.#transport = transport;
      this.#token = this.parts.lane.watch(transport.channel.fd, pollEvents.in, this);
      return transport;
    } catch (error) {
      return `${device}: ${messageOf(error)}`;
    }
  }

  protected dropTransport(): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    this.#transport = undefined;
    this.#link?.suspend();
    this.parts.lane.unwatch(transport.channel.fd, this.#token);
    if (transport.bell !== undefined && this.#doorbellToken >= 0) {
      this.parts.lane.unwatch(transport.bell.fd, this.#doorbellToken);
      this.#doorbellToken = -1;
    }
    this.#leaving.push(transport);
    // Not here: it may be the one that calls us.
    this.parts.lane.again({ resume: () => this.closeLeaving() });
  }

  /** From now on nothing that was on its way arrives. */
  protected closeLeaving(): void {
    for (const transport of this.#leaving.splice(0)) transport.close();
  }

  protected failed(reason: string, isDevice = false): void {
    const wasUp = this.#link?.isUp === true;
    const hasWorked = wasUp && this.#hasWorked;
    this.dropTransport();
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    // A wire that comes up, carries nothing and breaks is no better than one that does not come up.
    if (wasUp) this.#brokenNs = hasWorked ? monotonicNs() : Math.min(this.#brokenBeforeNs, monotonicNs());
    if (this.#link !== undefined) this.#setState(wasUp || this.isBroken ? 'recovering' : 'connecting', reason);
    this.onFailed(reason, wasUp, hasWorked, isDevice);
  }

  /** Since it came up, the peer has read something of ours and said so. */
  get #hasWorked(): boolean {
    const link = this.#link;
    if (link === undefined) return false;
    return link.heardNs > this.#beganNs || link.outgoing.peerPosition !== this.peerRead.position;
  }

  /** Ends all streams. False when there was no link. */
  protected drop(reason: string): boolean {
    const link = this.#link;
    this.dropTransport();
    this.#link = undefined;
    this.hasBegun = false;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    if (link === undefined) return false;
    link.close();
    // After the transport, which is closed then, too.
    this.parts.lane.again({ resume: () => link.free() });
    this.#setState('down', reason);
    return true;
  }

  protected say(message: LinkMessage): boolean {
    return this.events.send(encodeLinkMessage(message));
  }

  #setState(state: SessionState, reason: string): void {
    if (state === this.#state && reason === '') return;
    this.#state = state;
    this.events.onState(state, reason);
  }
}

/** Nobody else can guess it. */
function saltOf(name: string): number {
  // Of 30 bits: with more, what is read would be no small integer, and each look would allocate.
  return Number.parseInt(name.slice(0, 8), 16) & 0x3fff_ffff;
}

/** Devices that understand each other: a RoCEv2 card and the soft device that speaks the same. */
export function kindOf(wire: string): string {
  return wire === 'RoCEv2' ? 'roce' : wire;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
