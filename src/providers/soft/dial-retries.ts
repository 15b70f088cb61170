// When a QP that is not connected dials again, and when it gives up.

import type { LinkedQp } from './linked-qp.ts';
import { REDIAL_NS } from './rendezvous.ts';
import type { WireHost } from './wire.ts';

interface Keys {
  readonly deadline: object;
  readonly redial: object;
  hasDeadline: boolean;
}

export class DialRetries {
  readonly #host: WireHost<LinkedQp>;
  readonly #keys = new Map<LinkedQp, Keys>();

  constructor(host: WireHost<LinkedQp>) {
    this.#host = host;
  }

  /**
   * The QP has requests and no link: it fails after the time that its retries would take on a
   * hardware device.
   */
  wanted(qp: LinkedQp): void {
    const keys = this.#keysOf(qp);
    if (!qp.needsLink || keys.hasDeadline || qp.connectTimeoutNs === 0) return;
    keys.hasDeadline = true;
    this.#host.schedule(keys.deadline, qp.connectTimeoutNs, () => {
      if (qp.link === undefined) qp.onBroken('the peer did not answer');
    });
  }

  redial(qp: LinkedQp, dial: () => void): void {
    if (qp.state === 'ERR' || qp.state === 'RESET') return;
    this.#host.schedule(this.#keysOf(qp).redial, REDIAL_NS, dial);
  }

  stop(qp: LinkedQp): void {
    const keys = this.#keys.get(qp);
    if (keys === undefined) return;
    this.#keys.delete(qp);
    this.#host.unschedule(keys.deadline);
    this.#host.unschedule(keys.redial);
  }

  #keysOf(qp: LinkedQp): Keys {
    const keys = this.#keys.get(qp) ?? { deadline: {}, redial: {}, hasDeadline: false };
    this.#keys.set(qp, keys);
    return keys;
  }
}
