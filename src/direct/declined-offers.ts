// The last offers that were declined, and connections that lanes left, with the reason, for people
// who ask why a connection is not direct.

import type { Connection } from './connection.ts';
import { type OfferReport, reportOf } from './offer-reports.ts';

const KEPT = 256;

const reasons = {
  limit:
    'its program, or the programs of its user together, have too many offers that wait; or the daemon had no descriptor left',
  socket:
    'its socket is no plain TCP socket of an open connection: the kernel moves its bytes by kTLS, a sockmap or fast open, or it is closing',
  memory: 'there is no memory left for rings (direct.memoryBytes in the config), or the system gives none',
  self: 'both ends are in one program',
  bulk: 'it moves large pieces, for which plain TCP is faster than the wire tcp; it is offered again later',
  twice: 'it was offered before, and that offer still waits',
} as const;

export type DeclineReason = keyof typeof reasons;

export class DeclinedOffers {
  readonly #kept: OfferReport[] = [];

  add(connection: Connection, why: DeclineReason): void {
    this.#kept.push({ ...reportOf(connection), state: why === 'bulk' ? 'left' : 'declined', reason: reasons[why] });
    if (this.#kept.length > 2 * KEPT) this.#kept.splice(0, KEPT);
  }

  get reports(): readonly OfferReport[] {
    return this.#kept.slice(-KEPT);
  }
}
