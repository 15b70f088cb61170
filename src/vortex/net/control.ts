// The control connection of a stream: hellos with a time limit, then messages and a heartbeat until
// the last line.

import type { Socket } from 'node:net';
import { ProtocolError } from '../../errors.ts';
import {
  allClosed,
  Heartbeat,
  hangUp,
  isOfKind,
  readMessage,
  unexpected,
  writeMessage,
} from '../../json-lines/index.ts';
import { MAX_LINE_BYTES, type Message, type MessageOfKind, vortexProtocol } from './protocol.ts';
import { failureOf, StreamFailure } from './stream-failure.ts';

const BEATS_A_TIMEOUT = 4;
/** The connections of this thread, until they are closed. */
const sockets = new Set<Socket>();

export interface ControlEvents {
  onMessage(message: Message): void;
  /** Once, and the last event. */
  onFailure(failure: StreamFailure): void;
}

export class Control implements Disposable {
  readonly #socket: Socket;
  #heartbeat: Heartbeat | undefined;
  #isEnded = false;

  /** Takes over a socket that is connected, and secure if it has to be. */
  constructor(socket: Socket) {
    this.#socket = socket;
    socket.setNoDelay(true);
    // Between two reads nobody else listens for errors; the next read rejects with this one.
    socket.on('error', () => {});
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket));
  }

  get localAddress(): string {
    return (this.#socket.localAddress ?? '127.0.0.1').replace(/^::ffff:/, '');
  }

  get peer(): string {
    return `${(this.#socket.remoteAddress ?? 'a peer that is gone').replace(/^::ffff:/, '')}`;
  }

  send(message: Message): void {
    if (!this.#isEnded) writeMessage(this.#socket, vortexProtocol, message);
  }

  /** The next message, which must be of that kind. */
  async expect<const Kind extends Message['kind']>(kind: Kind, signal: AbortSignal): Promise<MessageOfKind<Kind>> {
    const message = await this.#next(signal);
    if (isOfKind(message, kind)) return message;
    if (message.kind === 'refused') throw new StreamFailure('protocol', `the peer refuses: ${message.reason}`);
    if (message.kind === 'bye') throw new StreamFailure('closed', `the peer left: ${message.reason}`);
    throw failureOf(unexpected(message, kind));
  }

  /** From now on messages come as events, and a peer that is silent for too long is dead. */
  start(timeoutMs: number, events: ControlEvents): void {
    this.#heartbeat = new Heartbeat({
      heartbeatMs: timeoutMs / BEATS_A_TIMEOUT,
      deadMs: timeoutMs,
      ping: (number) => this.send({ kind: 'ping', number }),
      onDead: (reason) => this.#fail(events, new StreamFailure('silent', `the peer is ${reason}`)),
    });
    void this.#listen(events);
  }

  /** Hangs up, with a last line if there is one. */
  end(last?: Message): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#heartbeat?.stop();
    if (last === undefined) this.#socket.destroy();
    else hangUp(this.#socket, vortexProtocol.line(last));
  }

  [Symbol.dispose](): void {
    this.end();
  }

  async #listen(events: ControlEvents): Promise<void> {
    try {
      while (!this.#isEnded) {
        const message = await this.#next();
        if (this.#isEnded) return;
        this.#heartbeat?.heard();
        if (message.kind === 'ping') this.send({ kind: 'pong', number: message.number });
        else if (message.kind === 'pong') this.#heartbeat?.answered(message.number);
        else events.onMessage(message);
      }
    } catch (error) {
      this.#fail(events, failureOf(error));
    }
  }

  #fail(events: ControlEvents, failure: StreamFailure): void {
    if (this.#isEnded) return;
    events.onFailure(failure);
  }

  async #next(signal?: AbortSignal): Promise<Message> {
    try {
      return await readMessage(this.#socket, vortexProtocol, { maxBytes: MAX_LINE_BYTES, signal });
    } catch (error) {
      signal?.throwIfAborted();
      const reason = error instanceof Error ? error.message : String(error);
      throw new StreamFailure(error instanceof ProtocolError ? 'protocol' : 'died', reason, { cause: error });
    }
  }
}

/**
 * Resolves when all control connections are closed: a hang-up waits for the peer to read the last
 * line.
 */
export async function controlsClosed(): Promise<void> {
  await allClosed(sockets);
}
