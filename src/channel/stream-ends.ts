// How a stream ends: which control records it has pending, which ends each side has told, and when
// its stream id is free again.
//
// Each side ends its half with exactly one `shut`, or both halves with a `reset` (`refused` is a
// reset with an errno). The id is free when this side has written such an end and has read one.
// Credits and resets of a free id may still arrive, written before the peer knew; any other record
// of it is a protocol error.

/** Control records that a stream has pending, as flags; they are written in this order. */
export const recordFlags = {
  open: 1,
  opened: 2,
  refused: 4,
  from: 8,
  mirror: 16,
  credit: 32,
  returned: 64,
  shut: 128,
  reset: 256,
} as const;

const ENDS = recordFlags.shut | recordFlags.reset | recordFlags.refused;

export interface StreamEndsEvents {
  /** The first control record is pending. */
  onPending(): void;
  /** Neither side will write a record of the stream any more. */
  onIdFree(): void;
}

export class StreamEnds {
  readonly #events: StreamEndsEvents;
  /** Control records that are to be written: flags of `recordFlags`. */
  pending = 0;
  /** A `shut` of this side is written or pending: no data comes after it. */
  isShutHere = false;
  isResetHere = false;
  isShutThere = false;
  isResetThere = false;
  #hasWrittenEnd = false;
  #isIdFree = false;

  constructor(events: StreamEndsEvents) {
    this.#events = events;
  }

  /** Both halves ended in order. */
  get isWhole(): boolean {
    return this.isShutHere && this.isShutThere;
  }

  get isOpen(): boolean {
    return !this.isShutHere && !this.isShutThere && !this.isResetHere;
  }

  /** Whether data may be sent: the peer has been told of the stream, and of no end. */
  get maySend(): boolean {
    return !this.isShutHere && !this.isResetHere && (this.pending & recordFlags.open) === 0;
  }

  /** Whether the peer may send data: it has told no end. */
  get mayReceive(): boolean {
    return !this.isShutThere && !this.isResetThere;
  }

  request(flag: number): void {
    if (this.#isIdFree) return;
    const isFirst = this.pending === 0;
    this.pending |= flag;
    if (isFirst) this.#events.onPending();
  }

  /** The record is in the ring. */
  written(flag: number): void {
    this.pending &= ~flag;
    if ((flag & ENDS) === 0) return;
    this.#hasWrittenEnd = true;
    this.#settle();
  }

  shutHere(): void {
    this.isShutHere = true;
    this.request(recordFlags.shut);
  }

  /** The program is gone, or is to be reset. */
  resetHere(): void {
    if (!this.isResetHere) this.request(recordFlags.reset);
    this.isResetHere = true;
  }

  refuseHere(): void {
    this.isResetHere = true;
    this.request(recordFlags.refused);
  }

  shutThere(): void {
    this.isShutThere = true;
    this.#settle();
  }

  resetThere(): void {
    this.isResetThere = true;
    // An end of our own gives the id back, if there was none.
    this.resetHere();
    this.#settle();
  }

  /** Nobody reads records of the stream any more. */
  abandon(): void {
    this.pending = 0;
    this.isResetHere = true;
    this.#isIdFree = true;
  }

  #settle(): void {
    if (this.#isIdFree || !this.#hasWrittenEnd || this.mayReceive) return;
    this.#isIdFree = true;
    this.pending = 0;
    this.#events.onIdFree();
  }
}
