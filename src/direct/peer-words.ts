// What is kept of one peer whose control connection is up: the keys that it told, and what it was
// answered and has not said anything to yet.

/** Keys of offers that wait at a peer. An honest one tells at most 1024 of those at once. */
const MAX_KEYS = 4096;
/** Slots that wait for the word of a peer. */
const MAX_ANSWERS = 1024;

export class PeerWords<Answer> {
  /** This side dialed: the peer answers. */
  readonly isDialer: boolean;
  readonly answers = new Map<string, Answer>();
  readonly #keys = new Set<string>();
  /** It was told that an offer is gone which waits here: it is told again when a link is up. */
  isOwed = false;

  constructor(isDialer: boolean) {
    this.isDialer = isDialer;
  }

  get keys(): readonly string[] {
    return [...this.#keys];
  }

  get mayAnswer(): boolean {
    return this.answers.size < MAX_ANSWERS;
  }

  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /** The oldest one is forgotten when there are too many. */
  remember(key: string): void {
    this.#keys.delete(key);
    this.#keys.add(key);
    if (this.#keys.size <= MAX_KEYS) return;
    const [oldest = key] = this.#keys;
    this.#keys.delete(oldest);
  }

  forget(key: string): void {
    this.#keys.delete(key);
  }
}
