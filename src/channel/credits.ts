// Credits: how many bytes each side of a stream may send before it is granted more, and the memory
// that all of that may cost.

/** The least that a stream is granted, however short memory is, so that it can always go on. */
export const LEAST_WINDOW_BYTES = 4096;

const TWO_32 = 4_294_967_296;
const HALF = 0x8000_0000;

/**
 * Bytes that peers may still send to this side, which then has to hold them, for all streams
 * together.
 */
export class MemoryBudget {
  readonly limitBytes: number;
  #promisedBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /** Granted and not consumed yet: the most that could have to be held. */
  get promisedBytes(): number {
    return this.#promisedBytes;
  }

  /** Promises up to `wanted` bytes: fewer when memory is short, but at least LEAST_WINDOW_BYTES. */
  promise(wanted: number): number {
    // A part of what is left, so that the first streams do not get all of it.
    const fair = Math.max(LEAST_WINDOW_BYTES, (this.limitBytes - this.#promisedBytes) / 4);
    const bytes = Math.min(wanted, Math.floor(fair));
    this.#promisedBytes += bytes;
    return bytes;
  }

  settle(bytes: number): void {
    this.#promisedBytes -= bytes;
  }
}

/** Bytes that the peer may send on one stream. */
export class ReceiveWindow {
  readonly #budget: MemoryBudget;
  readonly #maxBytes: number;
  /** All three count from the start of the stream. */
  #granted = 0;
  #received = 0;
  #consumed = 0;
  #windowBytes: number;
  /** The peer was told of this grant. */
  #told = 0;

  constructor(budget: MemoryBudget, firstBytes: number, maxBytes: number) {
    this.#budget = budget;
    this.#maxBytes = maxBytes;
    this.#windowBytes = budget.promise(firstBytes);
    this.#granted = this.#windowBytes;
  }

  /** Received and not consumed. */
  get waitingBytes(): number {
    return this.#received - this.#consumed;
  }

  /** A grant is due that the peer has not been told of and may need soon. */
  get isDue(): boolean {
    const news = this.#granted - this.#told;
    return news > 0 && (news >= this.#windowBytes / 2 || this.#told - this.#received < this.#windowBytes / 4);
  }

  /** The grant as it travels, modulo 2^32; it counts as told. */
  tell(): number {
    this.#told = this.#granted;
    return this.#granted % TWO_32;
  }

  get isTold(): boolean {
    return this.#told === this.#granted;
  }

  /** False when the peer sent more than it may. */
  receive(bytes: number): boolean {
    if (this.#received + bytes > this.#granted) return false;
    this.#received += bytes;
    return true;
  }

  /**
   * The program has taken so many bytes. The peer may send as many again, and more if the program
   * is quick.
   */
  consume(bytes: number): void {
    this.#consumed += bytes;
    this.#budget.settle(bytes);
    const open = this.#granted - this.#consumed;
    if (open > this.#windowBytes / 2) return;
    // Everything that came was taken at once: the window is the bottleneck.
    if (this.waitingBytes === 0 && this.#windowBytes < this.#maxBytes) this.#windowBytes = this.#grown();
    const wanted = this.#windowBytes - open;
    this.#granted += this.#budget.promise(wanted);
  }

  close(): void {
    this.#budget.settle(this.#granted - this.#consumed);
    this.#consumed = this.#granted;
  }

  #grown(): number {
    const { limitBytes, promisedBytes } = this.#budget;
    const isRoomy = promisedBytes + this.#windowBytes < limitBytes / 2;
    return isRoomy ? Math.min(this.#maxBytes, this.#windowBytes * 2) : this.#windowBytes;
  }
}

/** Bytes that this side may send on one stream. */
export class SendWindow {
  #limit = 0;
  #sent = 0;

  get availableBytes(): number {
    return this.#limit - this.#sent;
  }

  get sentBytes(): number {
    return this.#sent;
  }

  send(bytes: number): void {
    this.#sent += bytes;
  }

  /** The peer's grant as it travels. One that is behind what we know is ignored. */
  extend(credit: number): void {
    const more = (((credit - (this.#limit % TWO_32)) % TWO_32) + TWO_32) % TWO_32;
    if (more < HALF) this.#limit += more;
  }
}
