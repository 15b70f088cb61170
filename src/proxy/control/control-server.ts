// The listener for peers: accepts connections, checks that they use TLS exactly if this side does,
// and hands them on.

import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { MillraceError } from '../../errors.ts';
import { allClosed, type Guest, hangUp, WaitingRoom } from '../../json-lines/index.ts';
import { acceptTls, TLS_FIRST_BYTE } from '../../tls/index.ts';
import { controlProtocol } from './control-protocol.ts';
import type { ControlAddress, ControlSecurity } from './control-spec.ts';

/** More than any mesh has peers. Those who are no peer are limited by the waiting room. */
const MAX_CONNECTIONS = 8192;
/**
 * Connections whose peer has not proven its name yet, from all addresses that are no peer's
 * together, and from each that is one: a thousand peers may dial a daemon at its start.
 */
export const MAX_WAITING = 64;
/** How long a peer may take from connecting to its proof. */
export const HELLO_MS = 3000;

/** An accepted connection whose peer has not proven its name yet. */
export interface Incoming {
  readonly socket: Socket;
  /** Address without port. */
  readonly from: string;
  /** Signed by this side's authority. Undefined when insecure. */
  readonly certificate: X509Certificate | undefined;
  /** Its place among the connections that wait for a proof. */
  readonly guest: Guest;
}

interface ControlServerOptions {
  readonly listen: readonly ControlAddress[];
  readonly security: ControlSecurity;
  /** Whether a peer is known by that address. */
  readonly isPeer: (from: string) => boolean;
  readonly onIncoming: (incoming: Incoming) => void;
  readonly onError: (message: string) => void;
}

export class ControlServer implements AsyncDisposable {
  readonly #options: ControlServerOptions;
  readonly #room = newRoom();
  /** By the address of a peer, while there are connections from there. */
  readonly #peerRooms = new Map<string, WaitingRoom>();
  readonly #sockets = new Set<Socket>();
  readonly #servers: Server[] = [];
  #security: ControlSecurity;
  #isClosed = false;

  constructor(options: ControlServerOptions) {
    this.#options = options;
    this.#security = options.security;
  }

  /** Listens at all addresses, or at none. */
  async listen(): Promise<void> {
    try {
      for (const address of this.#options.listen) await this.#listen(address);
    } catch (error) {
      await this.close('not started');
      throw error;
    }
  }

  get addresses(): readonly ControlAddress[] {
    return this.#servers.map((server, index) => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      return { host: this.#options.listen[index]?.host ?? '', port };
    });
  }

  /** For connections that are accepted from now on. */
  setSecurity(security: ControlSecurity): void {
    this.#security = security;
  }

  /** Accepts no more; resolves when all connections have ended. */
  async close(reason: string): Promise<void> {
    this.#isClosed = true;
    for (const room of [this.#room, ...this.#peerRooms.values()]) room.close(reason);
    const stopped = this.#servers.filter(({ listening }) => listening).map((server) => once(server, 'close'));
    for (const server of this.#servers) if (server.listening) server.close();
    await Promise.all([...stopped, allClosed(this.#sockets)]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close('shutdown');
  }

  async #listen({ host, port }: ControlAddress): Promise<void> {
    const server = createServer({ noDelay: true }, (socket) => this.#accept(socket));
    server.maxConnections = MAX_CONNECTIONS;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    server.once('error', reject);
    server.listen({ host, port }, resolve);
    try {
      await promise;
    } catch (error) {
      const { code = String(error) } = error as NodeJS.ErrnoException;
      const message = `listen for peers on ${host} port ${port}: ${code}${hintOf(code)}`;
      throw new MillraceError('MILLRACE_ERR_FAILED', message, { cause: error });
    }
    server.removeListener('error', reject);
    server.on('error', ({ message }) => this.#options.onError(`accept a connection of a peer: ${message}`));
    this.#servers.push(server);
  }

  #accept(socket: Socket): void {
    const from = plainHost(socket.remoteAddress ?? '');
    this.#sockets.add(socket);
    // Whatever error ends the socket, `close` follows.
    socket.on('error', () => {});
    socket.once('close', () => this.#sockets.delete(socket));
    // It was accepted while the listener was closing.
    if (this.#isClosed) {
      socket.destroy();
      return;
    }
    const isTls = this.#security.kind === 'tls';
    const room = this.#roomOf(from);
    const guest = room.enter((reason) => {
      // A peer that expects TLS could not read a line of text.
      this.#refuse(from, reason, isTls ? undefined : socket);
      if (isTls) socket.destroy();
    }, from);
    if (guest === undefined) return;
    socket.once('close', () => {
      guest.leave();
      if (room.size === 0 && this.#peerRooms.get(from) === room) this.#peerRooms.delete(from);
    });
    socket.once('data', (bytes) => {
      socket.pause();
      socket.unshift(bytes);
      this.#receive(socket, from, guest, bytes[0] === TLS_FIRST_BYTE);
    });
  }

  /** Whoever fills the waiting room does not keep peers out. */
  #roomOf(from: string): WaitingRoom {
    if (!this.#options.isPeer(from)) return this.#room;
    const room = this.#peerRooms.get(from) ?? newRoom();
    this.#peerRooms.set(from, room);
    return room;
  }

  #receive(socket: Socket, from: string, guest: Guest, speaksTls: boolean): void {
    const security = this.#security;
    if (security.kind === 'insecure') {
      if (speaksTls) this.#refuse(from, 'a connection with TLS to a port without TLS (insecure)', socket);
      else this.#options.onIncoming({ socket, from, certificate: undefined, guest });
    } else if (!speaksTls) {
      this.#refuse(from, 'a connection without TLS to a port with TLS', socket);
    } else {
      acceptTls(socket, security, {
        onSecure: (secure, certificate) => this.#options.onIncoming({ socket: secure, from, certificate, guest }),
        onFail: (reason, secure) => this.#refuse(from, reason, secure),
      });
    }
  }

  #refuse(from: string, reason: string, socket: Socket | undefined): void {
    if (socket !== undefined) hangUp(socket, controlProtocol.line({ kind: 'refused', reason }));
    if (!this.#isClosed) this.#options.onError(`a connection from ${from} was refused: ${reason}`);
  }
}

function newRoom(): WaitingRoom {
  return new WaitingRoom({ maxWaiting: MAX_WAITING, helloMs: HELLO_MS });
}

function hintOf(code: string): string {
  if (code === 'EADDRINUSE') return ' (in use; choose another with listen.controlPort)';
  if (code === 'EADDRNOTAVAIL') return ' (this host has no such address; see listen.addresses)';
  if (code === 'EACCES') return ' (not allowed; choose a listen.controlPort of 1024 or more)';
  return '';
}

/** Node shows IPv4 peers of a listener on :: as mapped addresses. */
function plainHost(host: string): string {
  return host.replace(/^::ffff:/, '');
}
