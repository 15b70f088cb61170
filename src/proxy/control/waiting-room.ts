// Callers who have not said who they are: only so many, and only so long.

/** From the first byte to the proof. */
export const HELLO_MS = 3000;
export const MAX_WAITING = 64;
/** A newcomer takes the place of the one who waits longest, unless even that one has just come: all are in earnest then. */
const GRACE_MS = 500;

export class Guest {
  readonly sinceMs = performance.now();
  readonly #leave: () => void;
  /** How to send it away; changes as the connection grows. */
  expel: (reason: string) => void;

  constructor(expel: (reason: string) => void, leave: (guest: Guest) => void) {
    this.expel = expel;
    this.#leave = () => leave(this);
  }

  /** It said who it is, or is gone. */
  leave(): void {
    this.#leave();
  }
}

export class WaitingRoom {
  /** In the order they came. */
  readonly #guests = new Map<Guest, NodeJS.Timeout>();
  readonly #helloMs: number;
  readonly #graceMs: number;

  constructor(helloMs = HELLO_MS, graceMs = GRACE_MS) {
    this.#helloMs = helloMs;
    this.#graceMs = graceMs;
  }

  get size(): number {
    return this.#guests.size;
  }

  /** Undefined when there is no room, and the newcomer has been expelled. */
  enter(expel: (reason: string) => void): Guest | undefined {
    if (this.#guests.size >= MAX_WAITING) {
      const reason = `more than ${MAX_WAITING} callers who have not said who they are`;
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

  /** Sends everybody away. */
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
