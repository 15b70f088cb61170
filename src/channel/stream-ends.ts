// How a stream ends: what each side has said of it, and when its name is free for another stream.
//
// Each side ends its half with exactly one `shut`, or both with a `reset` (`refused` is a reset that says why). The name is
// free when this side has sent such an end and has got one. Credits and resets may still come for a name that is free,
// said before the peer knew; nothing else may, or the peer lies.

/** What a stream still has to tell the peer; flags, told in this order. */
export const says = { open: 1, opened: 2, refused: 4, credit: 8, shut: 16, reset: 32 } as const;

const ENDS = says.shut | says.reset | says.refused;

export interface StreamEndsEvents {
  /** There is something to say. */
  onToSay(): void;
  /** Neither side will say anything of it any more. */
  onNameFree(): void;
}

export class StreamEnds {
  readonly #events: StreamEndsEvents;
  /** What is to be said: flags of `says`. */
  saying = 0;
  /** Said, or about to be said in order: nothing comes after it. */
  isShutHere = false;
  isResetHere = false;
  isShutThere = false;
  isResetThere = false;
  #hasSaidEnd = false;
  #isNameFree = false;

  constructor(events: StreamEndsEvents) {
    this.#events = events;
  }

  get isWhole(): boolean {
    return this.isShutHere && this.isShutThere;
  }

  get isOpen(): boolean {
    return !this.isShutHere && !this.isShutThere && !this.isResetHere;
  }

  /** Whether the program's bytes may be sent: the peer knows the stream, and has not heard an end. */
  get maySend(): boolean {
    return !this.isShutHere && !this.isResetHere && (this.saying & says.open) === 0;
  }

  /** Whether the peer may send bytes: it has not said that there are no more. */
  get mayReceive(): boolean {
    return !this.isShutThere && !this.isResetThere;
  }

  say(flag: number): void {
    if (this.#isNameFree) return;
    const isFirst = this.saying === 0;
    this.saying |= flag;
    if (isFirst) this.#events.onToSay();
  }

  /** What was to be said is in the ring. */
  said(flag: number): void {
    this.saying &= ~flag;
    if ((flag & ENDS) === 0) return;
    this.#hasSaidEnd = true;
    this.#settle();
  }

  shutHere(): void {
    this.isShutHere = true;
    this.say(says.shut);
  }

  /** The program is gone, or has to go. */
  resetHere(): void {
    if (!this.isResetHere) this.say(says.reset);
    this.isResetHere = true;
  }

  refuseHere(): void {
    this.isResetHere = true;
    this.say(says.refused);
  }

  shutThere(): void {
    this.isShutThere = true;
    this.#settle();
  }

  resetThere(): void {
    this.isResetThere = true;
    // An end of our own gives the name back, if there was none.
    this.resetHere();
    this.#settle();
  }

  /** Nobody hears any more what is said. */
  abandon(): void {
    this.saying = 0;
    this.isResetHere = true;
    this.#isNameFree = true;
  }

  #settle(): void {
    if (this.#isNameFree || !this.#hasSaidEnd || this.mayReceive) return;
    this.#isNameFree = true;
    this.saying = 0;
    this.#events.onNameFree();
  }
}
