// The flusher: sends what the writer has put into our copy of the ring. At once while little is under way; under load it lets
// records gather until something completes or there is a piece worth sending. There is no timer.

import type { Notifier } from './notifier.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import type { Transport } from './transport.ts';

/** Of one WRITE, unless a single record is longer. */
const PIECE_BYTES = 128 * 1024;
/** WRITEs under way for each data queue pair, from which on small pieces wait for company. */
const BUSY_PER_QP = 4;

export interface FlusherOptions {
  readonly dataQps: number;
  readonly pollAfter: number;
}

export class Flusher {
  readonly #ring: OutgoingRing;
  readonly #options: FlusherOptions;
  #flushed: number;
  /**
   * At the end of the piece. Of a pad, only the first slot is sent: the peer gives the others back as soon as it has that one,
   * and what came late would stand where it has cleared.
   */
  #unsentSlots = 0;

  constructor(ring: OutgoingRing, options: FlusherOptions) {
    this.#ring = ring;
    this.#options = options;
    this.#flushed = ring.position;
  }

  /** Everything from here on is sent (again). */
  restart(position: number): void {
    this.#flushed = position;
  }

  get hasWork(): boolean {
    return this.#flushed !== this.#ring.position;
  }

  /** In shared memory, where records are in their place already: only tells the peer, with one ring for these and for room. */
  tell(transport: Transport, notifier: Notifier, isRoomNews: boolean): void {
    this.#flushed = this.#ring.position;
    if (notifier.mustNotify() || isRoomNews) transport.postNotification(this.#flushed);
  }

  /** False when our copy makes no sense any more: the peer could write there. */
  flush(transport: Transport, notifier: Notifier): boolean {
    const ring = this.#ring;
    const { dataQps, pollAfter } = this.#options;
    if (transport.inFlight >= pollAfter) transport.poll();
    const isBusy = transport.inFlight >= dataQps * BUSY_PER_QP;
    const waiting = ((ring.position - this.#flushed) >>> 0) * ring.geometry.slotBytes;
    if (isBusy && waiting < PIECE_BYTES) return true;
    while (this.#flushed !== ring.position) {
      const end = this.#pieceEnd();
      if (end < 0) return false;
      const sizeBytes = (((end - this.#flushed) >>> 0) - this.#unsentSlots) * ring.geometry.slotBytes;
      const notice = end === ring.position && notifier.mustNotify() ? end : -1;
      if (!transport.write(ring.offsetAt(this.#flushed), sizeBytes, notice)) break;
      if (notice >= 0) notifier.notified(end);
      this.#flushed = end;
    }
    transport.submit();
    return true;
  }

  /** Whole records that lie together, and not too much of them; negative where there is none. */
  #pieceEnd(): number {
    const ring = this.#ring;
    const { slots, slotBytes } = ring.geometry;
    const mask = slots - 1;
    const first = ring.slotsAt(this.#flushed);
    if (first === 0) return -1;
    let last = this.#flushed;
    let end = (last + first) >>> 0;
    while (end !== ring.position && (end & mask) !== 0) {
      const more = ring.slotsAt(end);
      if (more === 0) return -1;
      const next = (end + more) >>> 0;
      if (((next - this.#flushed) >>> 0) * slotBytes > PIECE_BYTES) break;
      last = end;
      end = next;
    }
    this.#unsentSlots = ring.isPadAt(last) ? ((end - last) >>> 0) - 1 : 0;
    return end;
  }
}
