// The session of the acceptor: asks the dialer for the link when it is needed, and takes the
// transports that the dialer offers, as far as it has a device for them.

import type { LinkMessage, Offer } from './handshake.ts';
import { type Geometry, regionBytes } from './region-layout.ts';
import { kindOf, Session } from './session.ts';
import { messageOf } from './session-transport.ts';
import type { Transport } from './transport.ts';

/** Larger regions than this are refused, unless our own are as large. */
const MAX_REGION_BYTES = 64 * 1024 * 1024;

export class AcceptingSession extends Session {
  override readonly isDialer = false;

  protected override onPeerUp(): void {
    // The `broken` that we sent may have been lost.
    if (this.isBroken) this.onFailed('it broke meanwhile');
    this.onWanted();
  }

  protected override onWanted(): void {
    // A link that broke is wanted, too: a dialer that has forgotten the session makes no offer by
    // itself.
    const isMissing = this.link === undefined ? this.isWanted : this.isBroken;
    if (isMissing && this.isPeerUp) this.say({ kind: 'want' });
  }

  protected override onBeat(_nowNs: number, isHeartbeat: boolean): void {
    // The dialer may have forgotten it.
    if (isHeartbeat) this.onWanted();
  }

  protected override onMessage(message: LinkMessage): void {
    if (message.kind === 'offer') this.#onOffer(message);
    else if (message.kind === 'ready') this.#onReady();
    else if (message.kind === 'rest') this.#onRest();
    else if (message.kind === 'unable') this.#onUnable(message.reason);
  }

  protected override onFailed(reason: string): void {
    this.say({ kind: 'broken', attempt: this.attempt, reason });
  }

  #onOffer(offer: Offer): void {
    const isKnown = this.link !== undefined && this.sessionId === offer.session;
    // An offer of this session that is not newer than the last one.
    if (isKnown && offer.attempt <= this.attempt) return;
    this.attempt = offer.attempt;
    if (offer.isResumed && !isKnown) {
      this.#reject('session', 'not known here');
      return;
    }
    if (!isKnown) this.drop('the peer begins anew', false);
    this.markBroken();
    this.dropTransport();
    this.closeLeaving();
    this.awaitAnswer(false);
    if (offer.wire === 'shm' && offer.place !== (this.options.place ?? '')) {
      // Rejected at once: finding out by trying takes seconds.
      this.#reject('device', 'shared memory needs one machine and one device.runtimeDir');
      return;
    }
    const devices = this.options.devices.filter((name) => kindOf(wireOf(name)) === offer.wire);
    if (devices.length === 0) {
      this.#reject('device', `no device here for the wire ${offer.wire}`);
      return;
    }
    const limit = Math.max(MAX_REGION_BYTES, regionBytes(this.options.geometry));
    if (regionBytes(offer.geometry) > limit || (isKnown && !isSame(offer.geometry, this.link?.options.geometry))) {
      this.host.onProtocolError(`rings of ${offer.geometry.slots} slots`);
      return;
    }
    if (this.isRegionWhole(offer.transport, offer.geometry)) this.#take(offer, devices);
  }

  #take(offer: Offer, devices: readonly string[]): void {
    this.sessionId = offer.session;
    const dataQps = offer.transport.qps.length - 1;
    const link = this.linkOf({ ...this.options, geometry: offer.geometry, dataQps });
    let transport: Transport | string = '';
    for (const device of devices) {
      transport = this.create(link, device, { ...this.options, dataQps });
      // Where a card is missing, a soft device may speak the same wire.
      if (typeof transport !== 'string') break;
    }
    if (typeof transport === 'string') {
      this.#reject('device', transport);
      this.#forgetUnmade(transport);
      return;
    }
    this.peerRead = offer.read;
    this.awaitAnswer(true);
    try {
      transport.connect(offer.transport);
    } catch (error) {
      this.#reject('device', messageOf(error));
      this.dropTransport();
      this.#forgetUnmade(messageOf(error));
      return;
    }
    // The peer has stopped writing, and begins again when it gets our `accept`.
    link.forgetUnread();
    this.say({ kind: 'accept', attempt: this.attempt, transport: transport.offer, read: link.readState });
  }

  #reject(code: 'session' | 'device', reason: string): void {
    this.say({ kind: 'reject', attempt: this.attempt, code, reason });
  }

  /** The dialer may try another device, or none: rings are made with the next offer. */
  #forgetUnmade(reason: string): void {
    if (!this.hasBegun) this.drop(reason, false);
  }

  /** The dialer does not use the link. */
  #onRest(): void {
    const { link } = this;
    if (link !== undefined && !(link.isUp && link.isUnused)) {
      this.say({ kind: 'busy', attempt: this.attempt });
      return;
    }
    if (link !== undefined) this.isResting = true;
    this.say({ kind: 'rested', attempt: this.attempt });
  }

  #onUnable(reason: string): void {
    if (this.hasBegun) return;
    const why = `at the peer: ${reason}`;
    this.unmade(why);
    this.drop(why, false);
    // It is asked for again at heartbeats: nothing is carried until it is up.
    this.isWanted = true;
  }

  #onReady(): void {
    if (this.transport === undefined || this.link?.isUp === true) return;
    this.mapPeer(() => this.begin());
  }
}

/** The wire of a device, as far as its name tells. */
function wireOf(device: string): string {
  return device.startsWith('soft-') ? device.slice('soft-'.length) : 'RoCEv2';
}

function isSame(one: Geometry, other: Geometry | undefined): boolean {
  if (other === undefined) return false;
  return one.slotBytes === other.slotBytes && one.slots === other.slots && one.maxRecordSlots === other.maxRecordSlots;
}
