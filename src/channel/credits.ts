// Credits: how much each side of a stream may send before it hears more, and the memory that all of that may cost.

/** The least that a stream is granted, however short memory is: it must always be able to go on. */
export const LEAST_WINDOW_BYTES = 4096;

const TWO_32 = 4_294_967_296;
const HALF = 0x8000_0000;

/** What this side may still be sent and then must hold, all streams together. */
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

  /** Promises up to `wanted`: less when memory is short, and never less than the least. */
  promise(wanted: number): number {
    // A part of what is left, so that the first ones do not get all of it.
    const fair = Math.max(LEAST_WINDOW_BYTES, (this.limitBytes - this.#promisedBytes) / 4);
    const bytes = Math.min(wanted, Math.floor(fair));
    this.#promisedBytes += bytes;
    return bytes;
  }

  settle(bytes: number): void {
    this.#promisedBytes -= bytes;
  }
}

/** What the peer may send on one stream. */
export class ReceiveWindow {
  readonly #budget: MemoryBudget;
  readonly #maxBytes: number;
  /** Since the start of the stream. */
  #granted = 0;
  #received = 0;
  #consumed = 0;
  #windowBytes: number;
  /** The peer was told of this much. */
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

  /** Something was granted that the peer does not know yet, and that it may need soon. */
  get isDue(): boolean {
    const news = this.#granted - this.#told;
    return news > 0 && (news >= this.#windowBytes / 2 || this.#told - this.#received < this.#windowBytes / 4);
  }

  /** As it travels. The peer knows it from now on. */
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

  /** The program has taken so much. The peer may send as much again, and more if the program is quick. */
  consume(bytes: number): void {
    this.#consumed += bytes;
    this.#budget.settle(bytes);
    const open = this.#granted - this.#consumed;
    if (open > this.#windowBytes / 2) return;
    // Everything that came was taken at once: the window is what holds the sender up.
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

/** What this side may send on one stream. */
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

  /** The peer lets us send so far, as it travels. What is behind us is old news. */
  extend(credit: number): void {
    const more = (((credit - (this.#limit % TWO_32)) % TWO_32) + TWO_32) % TWO_32;
    if (more < HALF) this.#limit += more;
  }
}
