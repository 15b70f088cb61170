// Where a sender of a file waits for its receiver: the first caller that speaks as it should gets the file.

import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { MillraceError, UsageError } from '../../errors.ts';
import { acceptTls, type ControlSecurity, nameMismatch } from '../../tls/index.ts';
import { abortable } from './abortable.ts';
import type { Address } from './address.ts';
import { failureOf } from './courier-error.ts';
import { Link } from './link.ts';

/** Those who have connected and not said who they are. */
const MAX_STRANGERS = 16;
const MAX_GREETING_MS = 5000;

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
  readonly #strangers = new Set<Socket>();
  readonly #met = Promise.withResolvers<Link>();
  #hasMet = false;

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
    this.#met.promise.catch(() => {});
    server.on('connection', (socket) => this.#onCall(socket));
  }

  /** The receiver. Whoever is wrong is sent away, and the next may do better. */
  async receiver(signal: AbortSignal): Promise<Link> {
    return abortable(this.#met.promise, signal);
  }

  /** Nobody can call any more; who has been received stays. */
  [Symbol.dispose](): void {
    this.#server.close();
    for (const socket of this.#strangers) socket.destroy();
    this.#strangers.clear();
  }

  #onCall(socket: Socket): void {
    socket.on('error', () => {});
    if (this.#strangers.size >= MAX_STRANGERS) {
      socket.destroy();
      return;
    }
    this.#strangers.add(socket);
    const { security, peerName } = this.#options;
    const timer = setTimeout(() => socket.destroy(), MAX_GREETING_MS);
    socket.once('close', () => {
      clearTimeout(timer);
      this.#strangers.delete(socket);
    });
    const welcome = (own: Socket): void => void this.#greet(socket, own, timer);
    if (security.kind === 'insecure') {
      welcome(socket);
      return;
    }
    acceptTls(socket, security, {
      onSecure: (secure, certificate) => {
        const problem = peerName === undefined ? undefined : nameMismatch(certificate, peerName);
        if (problem === undefined) welcome(secure);
        else this.#refuse(new Link(secure, 'receiver', this.#options.timeoutMs), new UsageError(problem));
      },
      onFail: (reason, secure) => {
        if (secure === undefined) this.#options.onRefused(reason);
        else this.#refuse(new Link(secure, 'receiver', this.#options.timeoutMs), new UsageError(reason));
      },
    });
  }

  async #greet(raw: Socket, socket: Socket, timer: NodeJS.Timeout): Promise<void> {
    const link = new Link(socket, 'receiver', this.#options.timeoutMs);
    try {
      await link.expect('hello', new AbortController().signal);
      if (this.#hasMet) throw new UsageError('another receiver has come before');
      this.#hasMet = true;
      clearTimeout(timer);
      this.#strangers.delete(raw);
      this.#met.resolve(link);
    } catch (error) {
      this.#refuse(link, error);
    }
  }

  #refuse(link: Link, error: unknown): void {
    this.#options.onRefused(failureOf(error).reason);
    link.fail(error);
  }
}
