// QPs that look for their peers: when to call again, and when to give up.

import type { LinkedQp } from './linked-qp.ts';
import { REDIAL_NS } from './meeting.ts';
import type { WireHost } from './wire.ts';

interface Keys {
  readonly deadline: object;
  readonly redial: object;
  hasDeadline: boolean;
}

export class Searches {
  readonly #host: WireHost<LinkedQp>;
  readonly #keys = new Map<LinkedQp, Keys>();

  constructor(host: WireHost<LinkedQp>) {
    this.#host = host;
  }

  /** The QP has requests and no link: from now on its patience runs out, as its retries would on a device of metal. */
  wanted(qp: LinkedQp): void {
    const keys = this.#keysOf(qp);
    if (!qp.isWanting || keys.hasDeadline || qp.patienceNs === 0) return;
    keys.hasDeadline = true;
    this.#host.schedule(keys.deadline, qp.patienceNs, () => {
      if (qp.link === undefined) qp.onBroken('nobody answered');
    });
  }

  redial(qp: LinkedQp, call: () => void): void {
    if (qp.state === 'ERR' || qp.state === 'RESET') return;
    this.#host.schedule(this.#keysOf(qp).redial, REDIAL_NS, call);
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
