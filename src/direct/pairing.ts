// Finds the two ends of one connection among those that are offered.

/** Sequence numbers of the first bytes that an end sends and receives; see bpf/direct.bpf.c. */
export interface Identity {
  readonly iss: number;
  readonly irs: number;
}

/** Of two ends of one connection: whether the first one connected. */
export function hasConnected(end: Identity, other: Identity): boolean {
  return other.irs === (end.iss + 1) >>> 0;
}

/** Offers that wait for the other end of their connection. */
export class WaitingOffers<Offer extends { readonly identity: Identity }> {
  readonly #offers = new Map<string, Offer>();

  get count(): number {
    return this.#offers.size;
  }

  /**
   * The offer of the other end, which no longer waits; or `waiting`: this one waits from now on; or
   * `twice`: an offer of the same end waits already, and this one does not.
   */
  add(offer: Offer): Offer | 'waiting' | 'twice' {
    for (const other of othersOf(offer.identity)) {
      const key = keyOf(other);
      const found = this.#offers.get(key);
      if (found === undefined) continue;
      this.#offers.delete(key);
      return found;
    }
    const key = keyOf(offer.identity);
    if (this.#offers.has(key)) return 'twice';
    this.#offers.set(key, offer);
    return 'waiting';
  }

  /** False when it did not wait. */
  remove(offer: Offer): boolean {
    const key = keyOf(offer.identity);
    return this.#offers.get(key) === offer && this.#offers.delete(key);
  }
}

/**
 * What the other end may be: this end connected, it accepted, or both connected at the same time.
 * The SYN counts in `iss` of an end that connected only, and never in `irs`.
 */
function othersOf({ iss, irs }: Identity): readonly Identity[] {
  const next = (iss + 1) >>> 0;
  const before = (irs - 1) >>> 0;
  return [
    { iss: irs, irs: next },
    { iss: before, irs: iss },
    { iss: before, irs: next },
  ];
}

function keyOf({ iss, irs }: Identity): string {
  return `${iss} ${irs}`;
}
