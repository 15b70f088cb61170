// The connection of the files protocol between sender and receiver of a file, beside the stream
// that carries the bytes.

import type { Socket } from 'node:net';
import { ProtocolError } from '../../errors.ts';
import { hangUp, isOfKind, readMessage, unexpected, writeMessage } from '../../json-lines/index.ts';
import { VortexError } from '../index.ts';
import { FileTransferError, failureOf } from './file-transfer-error.ts';
import { filesProtocol, MAX_LINE_BYTES, type Message, type MessageOfKind } from './protocol.ts';

const BUSY_A_TIMEOUT = 4;
/** When the stream breaks, so long is waited for the other side's reason. */
const LAST_WORD_MS = 1000;

export class Conversation implements Disposable {
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
    // Between two reads nobody else listens for errors; the next read rejects with this one.
    socket.on('error', () => {});
  }

  get peer(): string {
    return (this.#socket.remoteAddress ?? 'an address that is gone').replace(/^::ffff:/, '');
  }

  send(message: Message): void {
    if (!this.#isOver && this.#socket.writable) writeMessage(this.#socket, filesProtocol, message);
  }

  /**
   * The next message, which must be of that kind. Silence for too long is an error; `busy` is no
   * silence.
   */
  async expect<const Kind extends Message['kind']>(kind: Kind, signal: AbortSignal): Promise<MessageOfKind<Kind>> {
    for (;;) {
      const message = await this.#next(signal, this.#timeoutMs);
      if (isOfKind(message, kind)) return message;
      if (message.kind === 'failed') throw FileTransferError.ofPeer(this.#other, message);
      if (message.kind !== 'busy') throw this.#broken(unexpected(message, kind));
    }
  }

  /**
   * Sends `busy` at an interval until disposed, during work that may take longer than the timeout.
   */
  busy(): Disposable {
    const timer = setInterval(() => this.send({ kind: 'busy' }), this.#timeoutMs / BUSY_A_TIMEOUT);
    return { [Symbol.dispose]: () => clearInterval(timer) };
  }

  /** The stream broke: resolves to the other side's reason, or else to the stream's own error. */
  async explain(error: unknown, stream: { readonly failure: Error | undefined } | undefined): Promise<unknown> {
    // A refusal has its reason in it already.
    const isClear = !(error instanceof VortexError) || error.code === 'MILLRACE_ERR_VORTEX_PROTOCOL';
    if (isClear || this.#isOver) return error;
    const never = new AbortController().signal;
    try {
      for (;;) {
        const message = await this.#next(never, LAST_WORD_MS);
        if (message.kind === 'failed') return FileTransferError.ofPeer(this.#other, message);
      }
    } catch {
      // By now the engine may have told more than a code.
      return stream?.failure ?? error;
    }
  }

  /**
   * Ends it with the reason why this side gives up. A peer that has given up itself is told
   * nothing.
   */
  fail(error: unknown): void {
    const isTheirs = error instanceof FileTransferError && error.code === 'MILLRACE_ERR_FILES_PEER';
    this.end(isTheirs ? undefined : { kind: 'failed', ...failureOf(error) });
  }

  end(last?: Message): void {
    if (this.#isOver) return;
    this.#isOver = true;
    if (last === undefined) this.#socket.destroy();
    else hangUp(this.#socket, filesProtocol.line(last));
  }

  [Symbol.dispose](): void {
    this.end();
  }

  async #next(signal: AbortSignal, timeoutMs: number): Promise<Message> {
    const limit = AbortSignal.timeout(timeoutMs);
    const options = { maxBytes: MAX_LINE_BYTES, signal: AbortSignal.any([signal, limit]) };
    try {
      return await readMessage(this.#socket, filesProtocol, options);
    } catch (error) {
      signal.throwIfAborted();
      throw error instanceof ProtocolError ? this.#broken(error) : this.#lost(error, limit.aborted);
    }
  }

  #lost(error: unknown, isLate: boolean): VortexError {
    const who = `the ${this.#other} at ${this.peer}`;
    if (isLate) {
      return new VortexError('MILLRACE_ERR_VORTEX_TIMED_OUT', `${who} said nothing for ${this.#timeoutMs / 1000} s`);
    }
    return new VortexError('MILLRACE_ERR_VORTEX_PEER_DIED', `${who} has gone`, { cause: error });
  }

  #broken(error: ProtocolError): VortexError {
    return new VortexError(
      'MILLRACE_ERR_VORTEX_PROTOCOL',
      `the ${this.#other} at ${this.peer} broke the protocol: ${error.message}`,
      { cause: error },
    );
  }
}
