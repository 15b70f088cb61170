// A session: keeps a link connected, by one transport after the other, and gives up in time. The
// dialing side offers transports, the accepting side takes them.

import { ProtocolError } from '../errors.ts';
import type { Watched } from '../loop/index.ts';
import { monotonicNs, pollEvents, type Socket } from '../native/index.ts';
import type { Device } from '../verbs/index.ts';
import type { DirectStream } from './direct-stream.ts';
import { type Accept, type LinkMessage, linkProtocol } from './handshake.ts';
import { Link, type LinkEvents, type LinkHost, type LinkOptions, type ReadState } from './link.ts';
import type { LinkContext } from './link-context.ts';
import type { MirroredSlot } from './mirrored-slot.ts';
import { regionBytes } from './region-layout.ts';
import type { StreamInfo } from './stream.ts';
import { Transport, type TransportOptions } from './transport.ts';

export interface SessionOptions extends Omit<LinkOptions, 'salt'>, Omit<TransportOptions, 'slotBytes'> {
  /** In order of preference. */
  readonly devices: readonly string[];
  /** The same for daemons whose shared memory devices find each other, and for no others. */
  readonly place?: string;
  /** So long streams wait for a peer that cannot be reached. */
  readonly recoveryNs: number;
  /** A link is broken when its pings stay unanswered for so long. */
  readonly deadNs: number;
}

export type SessionState = 'down' | 'connecting' | 'up' | 'recovering';

/** The lane, as its sessions see it. */
export interface SessionHost extends LinkHost {
  /** Sends to the peer's lane by the control connection; false when that is down. */
  send(body: object): boolean;
  openDevice(name: string): Device;
  onState(state: SessionState, reason: string): void;
  /** The control connection with the peer is to end. */
  onProtocolError(reason: string): void;
  /** The promise needs Node's loop to settle. */
  wait(work: Promise<void>): void;
}

/** The other side has at least so long to answer an offer: it opens a device for it. */
const ANSWER_NS = 3_000_000_000;

export abstract class Session implements Watched, LinkEvents, Disposable {
  abstract readonly isDialer: boolean;
  protected readonly context: LinkContext;
  protected readonly options: SessionOptions;
  protected readonly host: SessionHost;
  /** Random, chosen by the dialer; only the two peers know it. */
  protected sessionId = '';
  /** The number of the offer that counts. */
  protected attempt = 0;
  /** The control connection is up. */
  protected isPeerUp = false;
  /** The link was up, so the peer knows the session and resumes it. */
  protected hasBegun = false;
  /** How far the peer has read, as of the last handshake. */
  protected peerRead: ReadState = { position: 0, sequence: 1 };
  #link: Link | undefined;
  #state: SessionState = 'down';
  #transport: Transport | undefined;
  /** Dropped transports, which are closed before another is made. */
  readonly #leaving: Transport[] = [];
  #token = -1;
  #doorbellToken = -1;
  /** The lane polls all rings after each event: that it was woken is enough. */
  readonly #rung: Watched = { onEvents: () => {} };
  #isRung = false;
  #deadlineNs = Number.POSITIVE_INFINITY;
  /** When the link broke; infinite while it is up, or never was. */
  #brokenNs = Number.POSITIVE_INFINITY;
  /** `#brokenNs` before the link came up last: that transport may not have worked at all. */
  #brokenBeforeNs = Number.POSITIVE_INFINITY;
  #beganNs = 0;
  recoveries = 0;

  constructor(context: LinkContext, options: SessionOptions, host: SessionHost) {
    this.context = context;
    this.options = options;
    this.host = host;
  }

  /** The control connection is up, and the link is not. */
  protected abstract onPeerUp(): void;

  /** Several times a second. */
  protected abstract onBeat(): void;

  /** The peer's lane sent a message of the current attempt, or an offer. */
  protected abstract onMessage(message: LinkMessage): void;

  /**
   * The transport is gone. `hasWorked`: it was up, and carried something. `isDevice`: the peer
   * cannot use the device at all.
   */
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

  /**
   * The control connection is up. `isSame`: the peer's daemon has the same incarnation as before.
   */
  peerUp(isSame: boolean): void {
    this.isPeerUp = true;
    if (!isSame) this.drop('the peer started again');
    if (this.#link?.isUp !== true) this.onPeerUp();
  }

  peerDown(): void {
    this.isPeerUp = false;
  }

  /** False when the connection cannot be carried. */
  open(socket: Socket, info: StreamInfo): boolean {
    return this.#link !== undefined && this.#state !== 'connecting' && this.#link.open(socket, info);
  }

  /** Undefined when the slot cannot be mirrored now. */
  mirror(key: string, slot: MirroredSlot, isOpener: boolean): DirectStream | undefined {
    return this.#link?.isUp === true ? this.#link.mirror(key, slot, isOpener) : undefined;
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

  /** Called several times a second, for deadlines and pings. */
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

  /** A message of the peer's lane, hostile until checked. */
  hear(body: object): void {
    let message: LinkMessage;
    try {
      message = linkProtocol.decode(body);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.host.onProtocolError(error.message);
      return;
    }
    if (message.kind !== 'offer' && message.attempt !== this.attempt) return;
    if (message.kind === 'closed') this.drop(`the peer ended the session: ${message.reason}`);
    else this.onMessage(message);
  }

  /** Breaks the transport on purpose, for tests and soaks. */
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
    // Before the link is up nobody else polls.
    if (this.#link?.transport === undefined) this.#transport?.poll();
  }

  // LinkEvents

  onBroken(reason: string, isProtocolError: boolean): void {
    if (!isProtocolError) {
      this.failed(reason);
      return;
    }
    this.drop(`protocol error of the peer: ${reason}`);
    this.host.onProtocolError(reason);
  }

  // For the two kinds of sessions

  protected get transport(): Transport | undefined {
    return this.#transport;
  }

  /** The link was up, and is not. */
  protected get isBroken(): boolean {
    return this.#brokenNs < Number.POSITIVE_INFINITY;
  }

  /** The peer has noticed before us that the transport broke. */
  protected markBroken(): void {
    if (this.#link?.isUp === true) this.#brokenNs = monotonicNs();
  }

  protected get isAwaitingAnswer(): boolean {
    return this.#deadlineNs < Number.POSITIVE_INFINITY;
  }

  /** Starts or stops the deadline of the peer's answer. */
  protected awaitAnswer(isAwaited: boolean): void {
    const ns = Math.max(ANSWER_NS, this.options.deadNs);
    this.#deadlineNs = isAwaited ? monotonicNs() + ns : Number.POSITIVE_INFINITY;
  }

  /** Both regions must have the same size: the peer's is written at the same offsets as ours. */
  protected isRegionWhole({ region }: Accept['transport'], geometry = this.options.geometry): boolean {
    if (region.sizeBytes === regionBytes(geometry)) return true;
    this.host.onProtocolError(`a region of ${region.sizeBytes} bytes`);
    return false;
  }

  /** Maps the peer's memory where the wire allows it, then goes on. */
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
    this.host.wait(done());
  }

  /** The transport is connected at both ends. */
  protected begin(): void {
    const [link, transport] = [this.#link, this.#transport];
    if (link === undefined || transport === undefined) return;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    if (!link.resume(transport, this.peerRead)) {
      this.onBroken('its read position is past what was written', true);
      return;
    }
    this.hasBegun = true;
    this.#beganNs = monotonicNs();
    link.heardNs = this.#beganNs;
    this.#brokenBeforeNs = this.#brokenNs;
    if (this.isBroken) this.recoveries++;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    this.#setState('up', '');
    const { doorbell } = transport;
    if (doorbell !== undefined)
      this.#doorbellToken = this.context.loop.watch(doorbell.fd, pollEvents.in | pollEvents.edge, this.#rung);
    // Records and programs have waited since.
    this.#isRung = true;
    this.context.loop.again({ resume: () => {} });
  }

  /** Returns the link, which is made if there is none. */
  protected linkOf(options: Omit<LinkOptions, 'salt'>): Link {
    const salt = saltOf(this.sessionId);
    this.#link ??= new Link(this.context, this.isDialer, { ...options, salt }, this.host, this);
    this.#setState(this.isBroken ? 'recovering' : 'connecting', '');
    return this.#link;
  }

  /** Returns the transport, or why there is none. */
  protected create(link: Link, device: string, given: Omit<TransportOptions, 'slotBytes'>): Transport | string {
    this.dropTransport();
    const options = { ...given, slotBytes: link.options.geometry.slotBytes };
    try {
      const transport = new Transport(this.host.openDevice(device), link.memory, link.incoming.number, options, {
        onNotification: (position) => link.onNotification(position),
        onControlNotification: () => link.onControlNotification(),
        onFailure: (reason) => {
          if (this.#transport === transport) this.failed(reason);
        },
      });
      this.#token = this.#watch(transport);
      this.#transport = transport;
      return transport;
    } catch (error) {
      return `${device}: ${messageOf(error)}`;
    }
  }

  /** The kernel may refuse: with hundreds of links on one device epoll_ctl gives EINVAL. */
  #watch(transport: Transport): number {
    try {
      return this.context.loop.watch(transport.channel.fd, pollEvents.in, this);
    } catch (error) {
      transport.close();
      throw error;
    }
  }

  protected dropTransport(): void {
    const transport = this.#transport;
    if (transport === undefined) return;
    this.#transport = undefined;
    this.#link?.suspend();
    this.context.loop.unwatch(transport.channel.fd, this.#token);
    if (transport.doorbell !== undefined && this.#doorbellToken >= 0) {
      this.context.loop.unwatch(transport.doorbell.fd, this.#doorbellToken);
      this.#doorbellToken = -1;
    }
    this.#leaving.push(transport);
    // Not at once: this may be one of its callbacks.
    this.context.loop.again({ resume: () => this.closeLeaving() });
  }

  /** From now on nothing arrives of what was on its way. */
  protected closeLeaving(): void {
    for (const transport of this.#leaving.splice(0)) transport.close();
  }

  protected failed(reason: string, isDevice = false): void {
    const wasUp = this.#link?.isUp === true;
    const hasWorked = wasUp && this.#hasWorked;
    this.dropTransport();
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    // A transport that comes up, carries nothing and breaks does not extend the time for recovery.
    if (wasUp) this.#brokenNs = hasWorked ? monotonicNs() : Math.min(this.#brokenBeforeNs, monotonicNs());
    if (this.#link !== undefined) this.#setState(wasUp || this.isBroken ? 'recovering' : 'connecting', reason);
    this.onFailed(reason, wasUp, hasWorked, isDevice);
  }

  /** The peer has read something since the link came up, and told us. */
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
    // After the transport, which is closed in the next turn, too.
    this.context.loop.again({ resume: () => link.free() });
    this.#setState('down', reason);
    return true;
  }

  protected say(message: LinkMessage): boolean {
    return this.host.send(linkProtocol.encode(message));
  }

  #setState(state: SessionState, reason: string): void {
    if (state === this.#state && reason === '') return;
    this.#state = state;
    this.host.onState(state, reason);
  }
}

/** Secret, because the session id is. */
function saltOf(sessionId: string): number {
  // 30 bits: a number that is no small integer would be allocated at each read.
  return Number.parseInt(sessionId.slice(0, 8), 16) & 0x3fff_ffff;
}

/** Devices of one wire understand each other: a RoCEv2 card and the soft device of wire `roce`. */
export function kindOf(wire: string): string {
  return wire === 'RoCEv2' ? 'roce' : wire;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
