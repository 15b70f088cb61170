// The flusher: WRITEs records of our copy of the ring to the peer's. At once while little is under
// way; under load it lets records gather until a WRITE completes or there is a piece worth sending.
// There is no timer.

import type { Notifier } from './notifier.ts';
import type { OutgoingRing } from './outgoing-ring.ts';
import type { Transport } from './transport.ts';

/** The longest WRITE, unless a single record is longer. */
const PIECE_BYTES = 128 * 1024;
/**
 * From so many WRITEs under way for each data queue pair on, small pieces wait until there are more
 * records. Partner: TCP_SIGNAL_EVERY in transport.ts, which is not more.
 */
const BUSY_PER_QP = 4;

interface FlusherOptions {
  readonly dataQps: number;
  readonly pollAfter: number;
}

export class Flusher {
  readonly #ring: OutgoingRing;
  readonly #options: FlusherOptions;
  #flushed: number;
  /**
   * Slots at the end of the piece that are not sent. Of a pad, only the first slot is: the peer
   * gives the others back as soon as it has read that one, and bytes that came later would stand in
   * slots that it has cleared.
   */
  #unsentSlots = 0;

  constructor(ring: OutgoingRing, options: FlusherOptions) {
    this.#ring = ring;
    this.#options = options;
    this.#flushed = ring.position;
  }

  /** Everything from this position on is sent, again where it was sent before. */
  restart(position: number): void {
    this.#flushed = position;
  }

  get hasWork(): boolean {
    return this.#flushed !== this.#ring.position;
  }

  /**
   * In shared memory, where records are in place already: only notifies the peer, once for records
   * and for room.
   */
  notify(transport: Transport, notifier: Notifier, hasRoom: boolean): void {
    this.#flushed = this.#ring.position;
    if (notifier.mustNotify() || hasRoom) transport.postNotification(this.#flushed);
  }

  /**
   * False when our copy has no valid records any more, which only the peer can have brought about.
   */
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
      const notifyTo = end === ring.position && notifier.mustNotify() ? end : -1;
      if (!transport.write(ring.offsetAt(this.#flushed), sizeBytes, notifyTo)) break;
      if (notifyTo >= 0) notifier.notified(end);
      this.#flushed = end;
    }
    transport.submit();
    return true;
  }

  /**
   * The end of a piece: whole records that lie together, not too many; negative where there is no
   * valid record.
   */
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
