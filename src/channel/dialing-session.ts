// The session of the dialer: offers transports when the link is needed, falls back to the next
// device, and gives a link back that nothing uses.

import { randomBytes } from 'node:crypto';
import type { Accept, LinkMessage } from './handshake.ts';
import { LAYOUT_VERSION } from './region-layout.ts';
import { kindOf, NOT_USED, Session } from './session.ts';
import { messageOf } from './session-transport.ts';

/** So many failures of a device in a row, and the next one is tried. */
const MAX_FAILURES = 2;

export class DialingSession extends Session {
  override readonly isDialer = true;
  #deviceIndex = 0;
  #failures = 0;
  /** Devices that were given up since the link was up, or began to be made. */
  #devicesTried = 0;
  /** An offer is to be made at the next beat. */
  #isDue = false;

  override close(reason: string): void {
    super.close(reason);
    this.#isDue = false;
  }

  protected override onPeerUp(): void {
    if (this.link?.isUp !== true) {
      if (this.link !== undefined || this.isWanted) this.#offer();
    } else if (this.isResting) {
      // The answer may have been lost.
      this.say({ kind: 'rest', attempt: this.attempt });
    }
  }

  protected override onWanted(): void {
    // Otherwise it is being made, or is about to be given back first.
    if (this.link === undefined && this.isPeerUp) this.#offer();
  }

  protected override onBeat(nowNs: number, isHeartbeat: boolean): void {
    if (!this.isPeerUp) return;
    if (this.#isDue) this.#offer();
    const { link } = this;
    if (!isHeartbeat || this.isResting || link?.isUp !== true || !link.isUnused) return;
    if (nowNs - link.usedNs < this.options.idleNs) return;
    this.isResting = true;
    this.say({ kind: 'rest', attempt: this.attempt });
  }

  protected override onMessage(message: LinkMessage): void {
    if (message.kind === 'want') this.want();
    else if (message.kind === 'accept') this.#onAccept(message);
    else if (message.kind === 'reject') this.#onReject(message.code, message.reason);
    else if (message.kind === 'broken') this.failed(`at the peer: ${message.reason}`);
    else if (message.kind === 'rested') this.#onRested();
    else if (message.kind === 'busy') this.#onBusy();
    else if (message.kind === 'offer') this.host.onProtocolError('it sent an offer, though it is the acceptor');
  }

  #offer(): void {
    this.#isDue = false;
    const isResumed = this.hasBegun;
    if (this.link === undefined) this.sessionId = randomBytes(16).toString('hex');
    const link = this.linkOf(this.options);
    this.attempt++;
    this.closeLeaving();
    const transport = this.create(link, this.options.devices[this.#deviceIndex] ?? '', this.options);
    if (typeof transport === 'string') {
      this.failed(transport, true);
      return;
    }
    this.awaitAnswer(true);
    const isSent = this.say({
      kind: 'offer',
      layout: LAYOUT_VERSION,
      session: this.sessionId,
      isResumed,
      attempt: this.attempt,
      wire: kindOf(transport.wire),
      place: this.options.place ?? '',
      geometry: link.options.geometry,
      transport: transport.offer,
      read: link.readState,
    });
    if (!isSent) this.#later();
  }

  #onAccept(accept: Accept): void {
    if (!this.isAwaitingAnswer || !this.isRegionWhole(accept.transport)) return;
    this.peerRead = accept.read;
    // The peer has stopped writing, and begins again when it gets our `ready`.
    this.link?.forgetUnread();
    try {
      this.transport?.connect(accept.transport);
    } catch (error) {
      this.failed(messageOf(error));
      return;
    }
    this.mapPeer(() => {
      this.say({ kind: 'ready', attempt: this.attempt });
      this.begin();
    });
  }

  #onReject(code: string, reason: string): void {
    if (code === 'session') {
      this.drop('the peer does not know the session any more');
      this.#offer();
      return;
    }
    this.failed(`the peer refused: ${reason}`, code === 'device');
  }

  /** The peer does not use the link either, and waits for its end. */
  #onRested(): void {
    if (!this.isResting) return;
    this.say({ kind: 'closed', attempt: this.attempt, reason: NOT_USED });
    const worked = this.#deviceIndex;
    this.drop(NOT_USED, false);
    this.#deviceIndex = worked;
    if (this.isWanted) this.#offer();
  }

  #onBusy(): void {
    if (!this.isResting) return;
    this.isResting = false;
    this.isWanted = false;
    this.openWaiting();
  }

  protected override onFailed(reason: string, wasUp: boolean, hasWorked: boolean, isDevice: boolean): void {
    if (hasWorked) this.#failures = 0;
    if (wasUp) this.#devicesTried = 0;
    const isNext = ++this.#failures >= MAX_FAILURES || isDevice;
    if (isNext) {
      this.#failures = 0;
      this.#devicesTried++;
      this.#deviceIndex = (this.#deviceIndex + 1) % this.options.devices.length;
    }
    this.#later();
    const isLast = this.#devicesTried >= this.options.devices.length;
    if (isLast) {
      this.#devicesTried = 0;
      this.unmade(reason);
      this.say({ kind: 'unable', reason });
    }
    // The first retry is made at once, and so is the first try of the next device.
    if (this.isPeerUp && (wasUp || (isNext && !isLast))) this.context.loop.again({ resume: () => this.#retry() });
  }

  #retry(): void {
    if (this.#isDue) this.#offer();
  }

  #later(): void {
    this.dropTransport();
    this.awaitAnswer(false);
    this.#isDue = true;
  }

  protected override drop(reason: string, isFailure = true): boolean {
    this.#deviceIndex = 0;
    this.#failures = 0;
    this.#devicesTried = 0;
    const wasThere = super.drop(reason, isFailure);
    if (wasThere) this.#isDue = isFailure;
    return wasThere;
  }
}
