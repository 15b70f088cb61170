// Credits: how many bytes each side of a stream may send before it is granted more, and the memory
// that all of that may cost.

/** The least that a stream is granted, however short memory is, so that it can always go on. */
export const LEAST_WINDOW_BYTES = 4096;

const TWO_32 = 4_294_967_296;
const HALF = 0x8000_0000;

/**
 * Bytes that peers may still send to this side, which then has to hold them, for all streams
 * together. The least that each stream has is not counted: a budget that idle streams could use up
 * would leave nothing for busy ones.
 */
export class MemoryBudget {
  readonly limitBytes: number;
  #promisedBytes = 0;

  constructor(limitBytes: number) {
    this.limitBytes = limitBytes;
  }

  /** Granted above the least of each stream, and not consumed yet. */
  get promisedBytes(): number {
    return this.#promisedBytes;
  }

  /** Idle streams are to give their credit back, before windows cannot grow any more. */
  get isShort(): boolean {
    return this.#promisedBytes > this.limitBytes / 4;
  }

  /** Promises up to `wanted` bytes, or fewer when memory is short. */
  promise(wanted: number): number {
    // A part of what is left, so that the first streams do not get all of it.
    const fair = Math.max(0, Math.floor((this.limitBytes - this.#promisedBytes) / 4));
    const bytes = Math.min(wanted, fair);
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
  /** All four count from the start of the stream. */
  #granted = 0;
  /** Of what was granted, the peer will not use so much. */
  #returned = 0;
  #received = 0;
  #consumed = 0;
  #windowBytes: number;
  /** The peer was told of this grant. */
  #told = 0;

  constructor(budget: MemoryBudget, firstBytes: number, maxBytes: number) {
    this.#budget = budget;
    this.#maxBytes = maxBytes;
    this.#windowBytes = firstBytes;
    this.#grant(firstBytes);
    // What a stream starts with is its share; it grows from there.
    this.#windowBytes = this.#open;
  }

  /** Received and not consumed. */
  get waitingBytes(): number {
    return this.#received - this.#consumed;
  }

  /** A grant is due that the peer has not been told of and may need soon. */
  get isDue(): boolean {
    const news = this.#granted - this.#told;
    const left = this.#told - this.#returned - this.#received;
    return news > 0 && (news >= this.#windowBytes / 2 || left < this.#windowBytes / 4);
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
    if (this.#received + bytes > this.#granted - this.#returned) return false;
    this.#received += bytes;
    return true;
  }

  /** The peer gives credit back. False when it has not so much. */
  giveBack(bytes: number): boolean {
    if (bytes > this.#told - this.#returned - this.#received) return false;
    const before = this.#countedBytes;
    this.#returned += bytes;
    this.#budget.settle(before - this.#countedBytes);
    // It has sent more before this came, and was granted nothing for it, as it seemed to have
    // enough.
    if (this.#open < LEAST_WINDOW_BYTES) this.#grant(this.#windowBytes);
    return true;
  }

  /**
   * The program has taken so many bytes. The peer may send as many again, and more if the program
   * is quick.
   */
  consume(bytes: number): void {
    const before = this.#countedBytes;
    this.#consumed += bytes;
    this.#budget.settle(before - this.#countedBytes);
    if (this.#open > this.#windowBytes / 2) return;
    // Everything that came was taken at once: the window is the bottleneck.
    if (this.waitingBytes === 0 && this.#windowBytes < this.#maxBytes) this.#windowBytes = this.#grown();
    this.#grant(this.#windowBytes);
  }

  close(): void {
    this.#budget.settle(this.#countedBytes);
    this.#consumed = this.#granted - this.#returned;
  }

  /** Granted and not consumed: the most that may have to be held. */
  get #open(): number {
    return this.#granted - this.#returned - this.#consumed;
  }

  /** What the budget has promised to this stream. */
  get #countedBytes(): number {
    return Math.max(0, this.#open - LEAST_WINDOW_BYTES);
  }

  /** Opens the window up to so much; as far as memory goes, and to LEAST_WINDOW_BYTES always. */
  #grant(wantedBytes: number): void {
    const open = this.#open;
    const least = Math.max(0, Math.min(wantedBytes, LEAST_WINDOW_BYTES) - open);
    this.#granted += least + this.#budget.promise(Math.max(0, wantedBytes - open - least));
  }

  #grown(): number {
    const { limitBytes, promisedBytes } = this.#budget;
    const isRoomy = promisedBytes + this.#windowBytes < limitBytes / 2;
    return isRoomy ? Math.min(this.#maxBytes, this.#windowBytes * 2) : this.#windowBytes;
  }
}

/** Bytes that this side may send on one stream. */
export class SendWindow {
  /** All that was granted; */
  #limit = 0;
  /** so much of it was given back. */
  #returned = 0;
  #sent = 0;
  /** It has given credit back, and none was granted since. */
  hasReturned = false;

  get availableBytes(): number {
    return this.#limit - this.#returned - this.#sent;
  }

  get sentBytes(): number {
    return this.#sent;
  }

  send(bytes: number): void {
    this.#sent += bytes;
  }

  /**
   * Gives back what is not used, but for the least. Returns how much, which the peer is to be told:
   * it counts from now on. Grants that are on their way add to what is left.
   */
  giveBack(): number {
    const bytes = Math.max(0, this.availableBytes - LEAST_WINDOW_BYTES);
    this.#returned += bytes;
    if (bytes > 0) this.hasReturned = true;
    return bytes;
  }

  /** The peer's grant as it travels. One that is behind what we know is ignored. */
  extend(credit: number): void {
    const more = (((credit - (this.#limit % TWO_32)) % TWO_32) + TWO_32) % TWO_32;
    if (more >= HALF) return;
    this.#limit += more;
    if (more > 0) this.hasReturned = false;
  }
}
