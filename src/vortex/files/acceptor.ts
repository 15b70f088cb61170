// Where a sender of a file waits for its receiver: the first peer that keeps to the protocol gets
// the file.

import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { MillraceError, ProtocolError, UsageError } from '../../errors.ts';
import { type Guest, WaitingRoom } from '../../json-lines/index.ts';
import { acceptTls, type ControlSecurity, nameMismatch } from '../../tls/index.ts';
import { abortable } from './abortable.ts';
import type { Address } from './address.ts';
import { Conversation } from './conversation.ts';
import { failureOf } from './file-transfer-error.ts';

/** Connections whose peer has not said hello. */
const MAX_WAITING = 16;
const HELLO_MS = 5000;

export interface AcceptorOptions {
  readonly address: Address;
  readonly security: ControlSecurity;
  readonly peerName: string | undefined;
  readonly timeoutMs: number;
  readonly onRefused: (reason: string) => void;
}

export class Acceptor implements Disposable {
  readonly port: number;
  readonly #server: Server;
  readonly #options: AcceptorOptions;
  readonly #room = new WaitingRoom({ maxWaiting: MAX_WAITING, helloMs: HELLO_MS });
  readonly #accepted = Promise.withResolvers<Conversation>();
  #hasAccepted = false;

  static async open(options: AcceptorOptions): Promise<Acceptor> {
    const { host, port } = options.address;
    const server = createServer({ pauseOnConnect: false });
    server.listen({ port, ...(host === undefined ? {} : { host }) });
    try {
      await once(server, 'listening');
    } catch (error) {
      const { code, message } = error as NodeJS.ErrnoException;
      if (code === 'EADDRINUSE') throw new UsageError(`listen on port ${port}: it is in use; choose another: --listen`);
      const blame = code === 'EACCES' ? 'MILLRACE_ERR_PERMISSION' : 'MILLRACE_ERR_USAGE';
      throw new MillraceError(blame, `listen on port ${port}: ${code ?? message}`, { cause: error });
    }
    return new Acceptor(server, options);
  }

  private constructor(server: Server, options: AcceptorOptions) {
    this.#server = server;
    this.#options = options;
    const address = server.address();
    this.port = typeof address === 'object' && address !== null ? address.port : options.address.port;
    this.#accepted.promise.catch(() => {});
    server.on('connection', (socket) => this.#onConnection(socket));
  }

  /** A peer that breaks the protocol is refused, and the next one may do better. */
  async receiver(signal: AbortSignal): Promise<Conversation> {
    return abortable(this.#accepted.promise, signal);
  }

  /** Takes no more connections; the receiver that was accepted stays. */
  [Symbol.dispose](): void {
    this.#server.close();
    this.#room.close('the sender listens no more');
  }

  #onConnection(socket: Socket): void {
    socket.on('error', () => {});
    const guest = this.#room.enter(() => socket.destroy());
    if (guest === undefined) return;
    socket.once('close', () => guest.leave());
    const { security, peerName } = this.#options;
    if (security.kind === 'insecure') {
      void this.#greet(socket, guest);
      return;
    }
    acceptTls(socket, security, {
      onSecure: (secure, certificate) => {
        const problem = peerName === undefined ? undefined : nameMismatch(certificate, peerName);
        if (problem === undefined) void this.#greet(secure, guest);
        else this.#refuse(this.#conversationOn(secure), new ProtocolError(problem));
      },
      onFail: (reason, secure) => {
        if (secure === undefined) this.#options.onRefused(reason);
        else this.#refuse(this.#conversationOn(secure), new ProtocolError(reason));
      },
    });
  }

  async #greet(socket: Socket, guest: Guest): Promise<void> {
    const conversation = this.#conversationOn(socket);
    try {
      await conversation.expect('hello', new AbortController().signal);
      if (this.#hasAccepted) throw new MillraceError('MILLRACE_ERR_FAILED', 'another receiver has the file');
      this.#hasAccepted = true;
      guest.leave();
      this.#accepted.resolve(conversation);
    } catch (error) {
      this.#refuse(conversation, error);
    }
  }

  #conversationOn(socket: Socket): Conversation {
    return new Conversation(socket, 'receiver', this.#options.timeoutMs);
  }

  #refuse(conversation: Conversation, error: unknown): void {
    this.#options.onRefused(failureOf(error).reason);
    conversation.fail(error);
  }
}
