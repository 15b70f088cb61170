// The session of the dialer: offers transports, and falls back to the next device.

import { randomBytes } from 'node:crypto';
import type { Accept, LinkMessage } from './handshake.ts';
import { LAYOUT_VERSION } from './region-layout.ts';
import { kindOf, messageOf, Session } from './session.ts';

/** So many failures of a device in a row, and the next one is tried. */
const MAX_FAILURES = 2;

export class DialingSession extends Session {
  override readonly isDialer = true;
  #deviceIndex = 0;
  #failures = 0;
  /** An offer is to be made at the next beat. */
  #isDue = false;

  override close(reason: string): void {
    super.close(reason);
    this.#isDue = false;
  }

  protected override onPeerUp(): void {
    this.#offer();
  }

  protected override onBeat(): void {
    if (this.#isDue && this.isPeerUp) this.#offer();
  }

  protected override onMessage(message: LinkMessage): void {
    if (message.kind === 'accept') this.#onAccept(message);
    else if (message.kind === 'reject') this.#onReject(message.code, message.reason);
    else if (message.kind === 'broken') this.failed(`at the peer: ${message.reason}`);
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
      this.failed(transport);
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

  protected override onFailed(_reason: string, wasUp: boolean, hasWorked: boolean, isDevice: boolean): void {
    if (hasWorked) this.#failures = 0;
    if (++this.#failures >= MAX_FAILURES || isDevice) {
      this.#failures = 0;
      this.#deviceIndex = (this.#deviceIndex + 1) % this.options.devices.length;
    }
    this.#later();
    // The first retry is made at once.
    if (wasUp && this.isPeerUp) this.context.loop.again({ resume: () => this.#retry() });
  }

  #retry(): void {
    if (this.#isDue) this.#offer();
  }

  #later(): void {
    this.dropTransport();
    this.awaitAnswer(false);
    this.#isDue = true;
  }

  protected override drop(reason: string): boolean {
    this.#deviceIndex = 0;
    this.#failures = 0;
    const wasThere = super.drop(reason);
    if (wasThere) this.#isDue = true;
    return wasThere;
  }
}
