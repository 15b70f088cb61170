// A session: makes a link when it is needed, keeps it connected, by one transport after the other,
// and gives up in time. The dialing side offers transports, the accepting side takes them.

import { ProtocolError } from '../errors.ts';
import { monotonicNs, type Socket } from '../native/index.ts';
import type { Device } from '../verbs/index.ts';
import type { DirectStream } from './direct-stream.ts';
import { type Accept, type LinkMessage, linkProtocol } from './handshake.ts';
import { Link, type LinkCounters, type LinkEvents, type LinkHost, type LinkOptions, type ReadState } from './link.ts';
import type { LinkContext } from './link-context.ts';
import type { MirroredSlot } from './mirrored-slot.ts';
import { regionBytes } from './region-layout.ts';
import { SessionTransport } from './session-transport.ts';
import type { StreamInfo } from './stream.ts';
import type { Transport, TransportOptions } from './transport.ts';
import { WaitingClients } from './waiting-clients.ts';

export interface SessionOptions extends Omit<LinkOptions, 'salt'>, Omit<TransportOptions, 'slotBytes'> {
  /** In order of preference. */
  readonly devices: readonly string[];
  /** The same for daemons whose shared memory devices find each other, and for no others. */
  readonly place?: string;
  /** So long streams wait for a peer that cannot be reached. */
  readonly recoveryNs: number;
  /** A link is broken when its pings stay unanswered for so long. */
  readonly deadNs: number;
  /** The dialer gives a link back that nothing has used for so long. */
  readonly idleNs: number;
}

/**
 * `idle`: there is no link, and none is needed. `connecting`: it is made for the first time.
 * `down`: it could not be made, or ended because it broke; it is tried again, and nobody waits for
 * it.
 */
export type SessionState = 'idle' | 'connecting' | 'up' | 'recovering' | 'down';

/** The lane, as its sessions see it. */
export interface SessionHost extends LinkHost {
  /** Sends to the peer's lane by the control connection; false when that is down. */
  send(body: object): boolean;
  openDevice(name: string): Device;
  onState(state: SessionState, reason: string): void;
  /** There is a link now, or none any more. */
  onLink(): void;
  /** A stream was opened for a client of this host. */
  onOpened(info: StreamInfo): void;
  /** A client has waited for a link that was not made, and was reset. */
  onRefused(info: StreamInfo, reason: string): void;
  /** The control connection with the peer is to end. */
  onProtocolError(reason: string): void;
  /** The promise needs Node's loop to settle. */
  wait(work: Promise<void>): void;
}

/** Why a link was given back. */
export const NOT_USED = 'it was not used';
/** The other side has at least so long to answer an offer: it opens a device for it. */
const ANSWER_NS = 3_000_000_000;

export abstract class Session implements LinkEvents, Disposable {
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
  /** The link is to be made. */
  protected isWanted = false;
  /** The link is about to be given back: new streams wait for the next one. */
  protected isResting = false;
  /** How far the peer has read, as of the last handshake. */
  protected peerRead: ReadState = { position: 0, sequence: 1 };
  #link: Link | undefined;
  #state: SessionState = 'idle';
  #reason = '';
  readonly #waiting = new WaitingClients();
  /** Of links that were given back or dropped. */
  #past: LinkCounters = { recordsIn: 0, recordsOut: 0, bytesIn: 0, bytesOut: 0 };
  #deadlineNs = Number.POSITIVE_INFINITY;
  /** When the link broke; infinite while it is up, or never was. */
  #brokenNs = Number.POSITIVE_INFINITY;
  /** `#brokenNs` before the link came up last: that transport may not have worked at all. */
  #brokenBeforeNs = Number.POSITIVE_INFINITY;
  #beganNs = 0;
  recoveries = 0;
  readonly #transports: SessionTransport;

  constructor(context: LinkContext, options: SessionOptions, host: SessionHost) {
    this.context = context;
    this.options = options;
    this.host = host;
    this.#transports = new SessionTransport(context, {
      openDevice: (name) => host.openDevice(name),
      wait: (work) => host.wait(work),
      failed: (reason) => this.failed(reason),
    });
  }

  /** The control connection is up. */
  protected abstract onPeerUp(): void;

  /** The link is needed from now on, and is not up. */
  protected abstract onWanted(): void;

  /** Several times a second; `isHeartbeat`: about once a second. */
  protected abstract onBeat(nowNs: number, isHeartbeat: boolean): void;

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
    return this.transport?.wire ?? '';
  }

  /** Streams of the link, and clients that wait for it. */
  get streamCount(): number {
    return (this.#link?.streamCount ?? 0) + this.#waiting.count;
  }

  /** The same, without direct streams that have left their slots. */
  get connectionCount(): number {
    return (this.#link?.connectionCount ?? 0) + this.#waiting.count;
  }

  /** Of all links that it has made. */
  get counters(): LinkCounters {
    const [past, now] = [this.#past, this.#link?.counters];
    if (now === undefined) return past;
    return {
      recordsIn: past.recordsIn + now.recordsIn,
      recordsOut: past.recordsOut + now.recordsOut,
      bytesIn: past.bytesIn + now.bytesIn,
      bytesOut: past.bytesOut + now.bytesOut,
    };
  }

  /**
   * The control connection is up. `isSame`: the peer's daemon has the same incarnation as before.
   */
  peerUp(isSame: boolean): void {
    this.isPeerUp = true;
    if (!isSame) this.#forget();
    this.onPeerUp();
  }

  peerDown(): void {
    this.isPeerUp = false;
  }

  /** The link is made, unless it is there. */
  want(): void {
    if (this.isWanted || (this.#link?.isUp === true && !this.isResting)) return;
    this.isWanted = true;
    this.onWanted();
  }

  /**
   * Opens a stream for a client, or has it wait for the link. False when the connection cannot be
   * carried.
   */
  open(socket: Socket, info: StreamInfo): boolean {
    const link = this.#link;
    if (link !== undefined && !this.isResting && (link.isUp || this.isBroken)) {
      if (!link.open(socket, info)) return false;
      this.host.onOpened(info);
      return true;
    }
    if (!this.isPeerUp || this.#state === 'down') return false;
    if (!this.#waiting.add(socket, info, monotonicNs())) return false;
    this.want();
    return true;
  }

  /** Undefined when the slot cannot be mirrored now. */
  mirror(key: string, slot: MirroredSlot, isOpener: boolean): DirectStream | undefined {
    // An acceptor that rests has given its word. A dialer may still be told that the link is used.
    const isUp = this.#link?.isUp === true && (this.isDialer || !this.isResting);
    return isUp ? this.#link?.mirror(key, slot, isOpener) : undefined;
  }

  turn(): number {
    const link = this.#link;
    if (link === undefined) return 0;
    const isPolling = this.#transports.isRung;
    this.#transports.isRung = false;
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
    else this.onBeat(nowNs, isHeartbeat);
    const { recoveryNs, deadNs } = this.options;
    if (this.#waiting.sinceNs + Math.max(recoveryNs, deadNs) < nowNs) {
      this.unmade('the link was not made in time');
    }
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
    if (message.kind !== 'offer' && 'attempt' in message && message.attempt !== this.attempt) return;
    if (message.kind === 'closed') this.#onClosed(message.reason);
    else this.onMessage(message);
  }

  /** Breaks the transport on purpose, for tests and soaks. */
  breakTransport(): void {
    this.#transports.break();
  }

  /** Ends all streams. */
  close(reason: string): void {
    if (this.#link !== undefined) this.say({ kind: 'closed', attempt: this.attempt, reason });
    this.drop(reason);
    this.isWanted = false;
    this.#refuseWaiting(reason);
  }

  [Symbol.dispose](): void {
    this.close('closed');
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
    return this.#transports.current;
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
    this.#transports.map(then);
  }

  /** The transport is connected at both ends. */
  protected begin(): void {
    const [link, transport] = [this.#link, this.transport];
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
    this.isWanted = false;
    this.isResting = false;
    this.#setState('up', '');
    this.#transports.begin();
    this.openWaiting();
  }

  /** For clients that wait while the link is up. */
  protected openWaiting(): void {
    for (const { socket, info } of this.#waiting.take()) {
      if (this.#link?.open(socket, info) === true) this.host.onOpened(info);
      else this.#refuse(socket, info, 'there are too many streams');
    }
  }

  /** The link cannot be made now: nobody waits for it, and it is tried again. */
  protected unmade(reason: string): void {
    this.#refuseWaiting(reason);
    if (this.#link?.isUp !== true && !this.isBroken) this.#setState('down', reason);
  }

  /** Returns the link, which is made if there is none. */
  protected linkOf(options: Omit<LinkOptions, 'salt'>): Link {
    const salt = saltOf(this.sessionId);
    if (this.#link === undefined) {
      this.#link = new Link(this.context, this.isDialer, { ...options, salt }, this.host, this);
      this.host.onLink();
    }
    this.#setState(this.isBroken ? 'recovering' : 'connecting', '');
    return this.#link;
  }

  /** Returns the transport, or why there is none. */
  protected create(link: Link, device: string, given: Omit<TransportOptions, 'slotBytes'>): Transport | string {
    return this.#transports.create(link, device, given);
  }

  protected dropTransport(): void {
    this.#transports.drop();
  }

  /** From now on nothing arrives of what was on its way. */
  protected closeLeaving(): void {
    this.#transports.closeLeaving();
  }

  protected failed(reason: string, isDevice = false): void {
    if (this.isResting && !this.isDialer) {
      this.#rested();
      return;
    }
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

  /**
   * Ends all streams. False when there was no link. `isFailure`: it is to be made again, to see
   * that it can be; otherwise when somebody needs it.
   */
  protected drop(reason: string, isFailure = true): boolean {
    const link = this.#link;
    this.dropTransport();
    this.#past = this.counters;
    this.#link = undefined;
    this.hasBegun = false;
    this.isResting = false;
    this.#deadlineNs = Number.POSITIVE_INFINITY;
    this.#brokenNs = Number.POSITIVE_INFINITY;
    if (link === undefined) return false;
    link.close();
    // After the transport, which is closed in the next turn, too.
    this.context.loop.again({ resume: () => link.free() });
    this.host.onLink();
    if (isFailure) this.isWanted = true;
    this.#setState(isFailure || this.#state === 'down' ? 'down' : 'idle', reason);
    return true;
  }

  /** The peer is another one now: what was known of it does not count. */
  #forget(): void {
    this.drop('the peer started again', false);
    this.isWanted = this.#waiting.count > 0;
    this.#setState('idle', '');
  }

  #onClosed(reason: string): void {
    if (this.isResting && !this.isDialer) this.#rested();
    else this.drop(`the peer ended the session: ${reason}`);
  }

  /** The dialer has ended the link, as was agreed. */
  #rested(): void {
    this.drop(NOT_USED, false);
    if (this.isWanted) this.onWanted();
  }

  #refuseWaiting(reason: string): void {
    for (const { socket, info } of this.#waiting.take()) this.#refuse(socket, info, reason);
  }

  #refuse(socket: Socket, info: StreamInfo, reason: string): void {
    socket.resetOnClose();
    socket.close();
    this.host.onRefused(info, reason);
  }

  protected say(message: LinkMessage): boolean {
    return this.host.send(linkProtocol.encode(message));
  }

  #setState(next: SessionState, reason: string): void {
    // What could not be made counts again when it is up.
    const state = next === 'connecting' && this.#state === 'down' ? 'down' : next;
    if (state === this.#state && (reason === '' || reason === this.#reason)) return;
    this.#state = state;
    this.#reason = reason;
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
