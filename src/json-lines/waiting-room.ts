// Connections whose peer has not said who it is: only so many of them, and each only for so long.
// Whoever has most of the places gives way to those who have fewer.

export interface WaitingRoomOptions {
  readonly maxWaiting: number;
  /** From the first byte to the moment when the peer is known. */
  readonly helloMs: number;
  /**
   * Where all sources have as many places, a newcomer takes that of the connection that waits
   * longest, unless even that one is as young as this: then all of them may be in earnest.
   */
  readonly graceMs?: number;
}

const GRACE_MS = 500;

/** One connection in a waiting room. */
export class Guest {
  readonly sinceMs = performance.now();
  /** Where it comes from, as far as places are shared. */
  readonly source: string;
  readonly #leave: () => void;
  /** How to end the connection; changes as the connection grows. */
  expel: (reason: string) => void;

  constructor(source: string, expel: (reason: string) => void, leave: (guest: Guest) => void) {
    this.source = source;
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

  /**
   * Undefined when there is no room, and the newcomer has been expelled. `address`: its IP address,
   * by which places are shared.
   */
  enter(expel: (reason: string) => void, address = ''): Guest | undefined {
    const source = sourceOf(address);
    if (this.#guests.size >= this.#maxWaiting) {
      const reason = `more than ${this.#maxWaiting} connections whose peers have not said who they are`;
      const leaving = this.#whoMakesRoom(source);
      if (leaving === undefined) {
        expel(reason);
        return undefined;
      }
      this.#expel(leaving, reason);
    }
    const guest = new Guest(source, expel, (one) => this.#remove(one));
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

  /** The one that waits longest of the source that has most places, if the newcomer's has fewer. */
  #whoMakesRoom(newcomer: string): Guest | undefined {
    const bySource = Map.groupBy(this.#guests.keys(), ({ source }) => source);
    let most: readonly Guest[] = [];
    for (const guests of bySource.values()) if (guests.length > most.length) most = guests;
    if (most.length > (bySource.get(newcomer)?.length ?? 0) + 1) return most[0];
    const [oldest] = this.#guests.keys();
    return oldest !== undefined && performance.now() - oldest.sinceMs >= this.#graceMs ? oldest : undefined;
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

/** A host may have all addresses of an IPv6 network of 64 bits. */
function sourceOf(address: string): string {
  if (!address.includes(':')) return address;
  const [start = '', end = ''] = address.split('::');
  const groups = [...start.split(':'), ...Array<string>(8).fill('0')].slice(0, 8 - end.split(':').length);
  return [...groups, ...end.split(':')].slice(0, 4).join(':');
}
