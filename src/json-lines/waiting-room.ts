// Connections whose peer has not said who it is: only so many of them, and each only for so long.

export interface WaitingRoomOptions {
  readonly maxWaiting: number;
  /** From the first byte to the moment when the peer is known. */
  readonly helloMs: number;
  /**
   * A newcomer takes the place of the connection that waits longest, unless even that one is as
   * young as this: then all of them may be in earnest.
   */
  readonly graceMs?: number;
}

const GRACE_MS = 500;

/** One connection in a waiting room. */
export class Guest {
  readonly sinceMs = performance.now();
  readonly #leave: () => void;
  /** How to end the connection; changes as the connection grows. */
  expel: (reason: string) => void;

  constructor(expel: (reason: string) => void, leave: (guest: Guest) => void) {
    this.expel = expel;
    this.#leave = () => leave(this);
  }

  /** Its peer said who it is, or is gone. */
  leave(): void {
    this.#leave();
  }
}

export class WaitingRoom {
  /** In the order they came. */
  readonly #guests = new Map<Guest, NodeJS.Timeout>();
  readonly #maxWaiting: number;
  readonly #helloMs: number;
  readonly #graceMs: number;

  constructor({ maxWaiting, helloMs, graceMs = GRACE_MS }: WaitingRoomOptions) {
    this.#maxWaiting = maxWaiting;
    this.#helloMs = helloMs;
    this.#graceMs = graceMs;
  }

  get size(): number {
    return this.#guests.size;
  }

  /** Undefined when there is no room, and the newcomer has been expelled. */
  enter(expel: (reason: string) => void): Guest | undefined {
    if (this.#guests.size >= this.#maxWaiting) {
      const reason = `more than ${this.#maxWaiting} connections whose peers have not said who they are`;
      const [oldest] = this.#guests.keys();
      if (oldest === undefined || performance.now() - oldest.sinceMs < this.#graceMs) {
        expel(reason);
        return undefined;
      }
      this.#expel(oldest, reason);
    }
    const guest = new Guest(expel, (one) => this.#remove(one));
    const late = `no hello within ${this.#helloMs} ms`;
    this.#guests.set(
      guest,
      setTimeout(() => this.#expel(guest, late), this.#helloMs),
    );
    return guest;
  }

  /** Expels everybody. */
  close(reason: string): void {
    for (const guest of this.#guests.keys()) this.#expel(guest, reason);
  }

  #expel(guest: Guest, reason: string): void {
    this.#remove(guest);
    guest.expel(reason);
  }

  #remove(guest: Guest): void {
    clearTimeout(this.#guests.get(guest));
    this.#guests.delete(guest);
  }
}
