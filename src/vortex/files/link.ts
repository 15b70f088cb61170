// The connection on which sender and receiver of a file talk, beside the stream that carries it.

import type { Socket } from 'node:net';
import { UsageError } from '../../errors.ts';
import { hangUp, readLine, writeLine } from '../../json-lines/index.ts';
import { VortexError } from '../index.ts';
import { CourierError, failureOf } from './courier-error.ts';
import { decodeMessage, encodeMessage, MAX_LINE_BYTES, type Message, type MessageOf } from './protocol.ts';

const BUSY_A_TIMEOUT = 4;
/** When the stream breaks, the other side may have said why: it gets so long. */
const LAST_WORD_MS = 1000;

export class Link implements Disposable {
  readonly #socket: Socket;
  readonly #timeoutMs: number;
  readonly #other: 'sender' | 'receiver';
  #isOver = false;

  /** Takes over a socket that is connected, and secure if it has to be. */
  constructor(socket: Socket, other: 'sender' | 'receiver', timeoutMs: number) {
    this.#socket = socket;
    this.#other = other;
    this.#timeoutMs = timeoutMs;
    socket.setNoDelay(true);
    // Between two lines nobody else listens; the next read tells what happened.
    socket.on('error', () => {});
  }

  get peer(): string {
    return (this.#socket.remoteAddress ?? 'an address that is gone').replace(/^::ffff:/, '');
  }

  send(message: Message): void {
    if (!this.#isOver && this.#socket.writable) writeLine(this.#socket, encodeMessage(message));
  }

  /** The next message, which must be of that kind. Silence for too long is an error; `busy` is no silence. */
  async expect<const Kind extends Message['kind']>(kind: Kind, signal: AbortSignal): Promise<MessageOf<Kind>> {
    for (;;) {
      const message = await this.#next(signal, this.#timeoutMs);
      if (isOf(message, kind)) return message;
      if (message.kind === 'failed') throw CourierError.ofPeer(this.#other, message);
      if (message.kind !== 'busy') throw this.#nonsense(`it said ${message.kind} where ${kind} was due`);
    }
  }

  /** Tells the other side that this one lives, until disposed: for work that takes its time. */
  busy(): Disposable {
    const timer = setInterval(() => this.send({ kind: 'busy' }), this.#timeoutMs / BUSY_A_TIMEOUT);
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  /** The stream broke: what the other side says to that, or else the best that the stream knows. */
  async explain(error: unknown, stream: { readonly failure: Error | undefined } | undefined): Promise<unknown> {
    // Who was refused knows why.
    const isClear = !(error instanceof VortexError) || error.code === 'MILLRACE_ERR_VORTEX_PROTOCOL';
    if (isClear || this.#isOver) return error;
    const never = new AbortController().signal;
    try {
      for (;;) {
        const message = await this.#next(never, LAST_WORD_MS);
        if (message.kind === 'failed') return CourierError.ofPeer(this.#other, message);
      }
    } catch {
      // Its engine has had the time to say more than a code.
      return stream?.failure ?? error;
    }
  }

  /** The last line: why this side gives up. Nothing is said to who has given up itself. */
  fail(error: unknown): void {
    const isTheirs = error instanceof CourierError && error.code === 'MILLRACE_ERR_COURIER_PEER';
    this.end(isTheirs ? undefined : { kind: 'failed', ...failureOf(error) });
  }

  end(last?: Message): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (last === undefined) this.#socket.destroy();
    else hangUp(this.#socket, `${JSON.stringify(encodeMessage(last))}\n`);
  }

  [Symbol.dispose](): void {
    this.end();
  }

  async #next(signal: AbortSignal, timeoutMs: number): Promise<Message> {
    const limit = AbortSignal.timeout(timeoutMs);
    let line: unknown;
    try {
      line = await readLine(this.#socket, { maxBytes: MAX_LINE_BYTES, signal: AbortSignal.any([signal, limit]) });
    } catch (error) {
      signal.throwIfAborted();
      throw this.#lost(error, limit.aborted);
    }
    try {
      return decodeMessage(line);
    } catch (error) {
      throw this.#nonsense(error instanceof UsageError ? error.message : String(error));
    }
  }

  #lost(error: unknown, isLate: boolean): VortexError {
    const who = `the ${this.#other} at ${this.peer}`;
    if (isLate) {
      return new VortexError('MILLRACE_ERR_VORTEX_TIMED_OUT', `${who} said nothing for ${this.#timeoutMs / 1000} s`);
    }
    const { destroyed, readableEnded, errored } = this.#socket;
    if (destroyed || readableEnded || errored !== null) {
      return new VortexError('MILLRACE_ERR_VORTEX_PEER_DIED', `${who} has gone`, { cause: error });
    }
    return this.#nonsense(error instanceof Error ? error.message : String(error));
  }

  #nonsense(reason: string): VortexError {
    return new VortexError(
      'MILLRACE_ERR_VORTEX_PROTOCOL',
      `the ${this.#other} at ${this.peer} broke the rules: ${reason}`,
    );
  }
}

function isOf<const Kind extends Message['kind']>(message: Message, kind: Kind): message is MessageOf<Kind> {
  return message.kind === kind;
}
