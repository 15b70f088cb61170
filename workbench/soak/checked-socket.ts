// A socket that knows every byte it has to send and to receive, and throws when others arrive.

import type { Socket } from 'node:net';
import { setTimeout as rest } from 'node:timers/promises';
import type { End } from './script.ts';
import { BLOCK_BYTES, SeededBytes } from './seeded-bytes.ts';

/** How many bytes a slow reader reads at once. */
const READ_BYTES = 32_768;

/** The bytes, or their end, are not those of the script, which must never happen. */
export class WrongBytes extends Error {}

export class CheckedSocket {
  readonly #socket: Socket;
  #incoming = new SeededBytes(0);
  #outgoing = new SeededBytes(0);
  #sent = 0;
  #received = 0;
  #hasEnded = false;
  #isClosed = false;
  #error: Error | undefined;
  readonly #closed = Promise.withResolvers<void>();
  #wake: () => void = () => {};
  /** When the last byte moved; Date.now(). */
  movedMs = Date.now();

  constructor(socket: Socket) {
    this.#socket = socket;
    socket.on('readable', () => this.#wake());
    socket.on('end', () => {
      this.#hasEnded = true;
      this.#wake();
    });
    socket.on('error', (error) => {
      this.#error = error;
      this.#wake();
    });
    socket.on('close', () => {
      this.#isClosed = true;
      this.#closed.resolve();
      this.#wake();
    });
  }

  get movedBytes(): number {
    return this.#sent + this.#received;
  }

  /** Sets the seed of the bytes of both directions. */
  begin(seed: number, own: End): void {
    const [up, down] = [new SeededBytes(seed), new SeededBytes(~seed)];
    [this.#outgoing, this.#incoming] = own === 'client' ? [up, down] : [down, up];
  }

  async send(bytes: number): Promise<void> {
    for (let left = bytes; left > 0; ) {
      const part = this.#outgoing.at(this.#sent, Math.min(left, BLOCK_BYTES));
      await this.#write(part);
      this.#sent += part.length;
      left -= part.length;
      this.movedMs = Date.now();
    }
  }

  async sendRaw(bytes: Buffer): Promise<void> {
    await this.#write(bytes);
  }

  async receive(bytes: number, paceMs = 0): Promise<void> {
    let sinceRest = 0;
    for (let left = bytes; left > 0; ) {
      const got = await this.#read(paceMs > 0 ? Math.min(left, READ_BYTES) : left);
      if (got === null) throw new WrongBytes(`the stream ended at ${this.#received}, ${left} bytes early`);
      this.#check(got);
      left -= got.length;
      sinceRest += got.length;
      if (paceMs === 0 || sinceRest < READ_BYTES) continue;
      sinceRest = 0;
      await rest(paceMs);
    }
  }

  /** Reads exactly `count` bytes; null when the stream ends before the first. */
  async receiveRaw(bytes: number): Promise<Buffer | null> {
    const parts: Buffer[] = [];
    let left = bytes;
    while (left > 0) {
      const got = await this.#read(left);
      if (got === null && left === bytes) return null;
      if (got === null) throw new WrongBytes(`the stream ended ${left} bytes early, in the header`);
      parts.push(got);
      left -= got.length;
    }
    return Buffer.concat(parts);
  }

  async shut(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.end(() => resolve());
    await promise;
    if (!this.#socket.writableFinished) await this.#broken();
  }

  /** Expects the end of the stream, without further bytes. */
  async ended(): Promise<void> {
    const got = await this.#read(1);
    if (got !== null) throw new WrongBytes(`more than ${this.#received} bytes arrived`);
  }

  reset(): void {
    this.#socket.resetAndDestroy();
  }

  /** Reads until the reset. */
  async wasReset(mostBytes: number): Promise<void> {
    try {
      for (let left = mostBytes + 1; ; ) {
        const got = await this.#read(left);
        if (got === null) throw new WrongBytes(`the stream ended at ${this.#received} instead of a reset`);
        this.#check(got);
        left -= got.length;
        if (left === 0) throw new WrongBytes(`more than ${this.#received - 1} bytes arrived`);
      }
    } catch (error) {
      if (error instanceof WrongBytes || !isReset(error)) throw error;
    }
  }

  /** Sends until the reset. */
  async wasCutOff(mostBytes: number): Promise<void> {
    try {
      await this.send(mostBytes);
    } catch (error) {
      if (isReset(error)) return;
      throw error;
    }
    throw new WrongBytes(`all ${mostBytes} bytes were accepted after the reader had gone`);
  }

  /** Ends the connection; what waits on it rejects with `error`. */
  giveUp(error: Error): void {
    this.#error ??= error;
    this.#socket.destroy();
    this.#wake();
  }

  close(): void {
    this.#socket.destroy();
  }

  #check(got: Buffer): void {
    const wrong = this.#incoming.firstWrong(this.#received, got);
    if (wrong >= 0) throw new WrongBytes(`the byte at ${wrong} is wrong`);
    this.#received += got.length;
    this.movedMs = Date.now();
  }

  async #write(bytes: Buffer): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#socket.write(bytes, () => resolve());
    await promise;
    // The callback does not always report a failure.
    if (this.#socket.destroyed) await this.#broken();
  }

  /** Null at the end. */
  async #read(mostBytes: number): Promise<Buffer | null> {
    for (;;) {
      const { readableLength } = this.#socket;
      const got: Buffer | null = readableLength > 0 ? this.#socket.read(Math.min(readableLength, mostBytes)) : null;
      if (got !== null) return got;
      if (this.#hasEnded) return null;
      if (this.#error !== undefined || this.#isClosed) await this.#broken();
      const { promise, resolve } = Promise.withResolvers<void>();
      this.#wake = resolve;
      // Starts reading, if it has not begun.
      this.#socket.read(0);
      await promise;
    }
  }

  /** Throws the reason of the end once it is known. */
  async #broken(): Promise<never> {
    await this.#closed.promise;
    throw this.#error ?? new WrongBytes('it was closed from within');
  }
}

export function isReset(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ECONNRESET' || code === 'EPIPE' || code === 'ECONNREFUSED';
}
