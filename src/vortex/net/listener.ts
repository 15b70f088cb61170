// Where receivers dial a sender: one port for control connections, with or without TLS, and for
// data connections.

import { Socket as NodeSocket } from 'node:net';
import { SystemError } from '../../errors.ts';
import { type Guest, hangUp, WaitingRoom } from '../../json-lines/index.ts';
import { AGAIN, FdWatch, ip, SharedMemory, Socket } from '../../native/index.ts';
import { acceptTls, type ControlSecurity, nameMismatch, TLS_FIRST_BYTE } from '../../tls/index.ts';
import { DATA_FIRST_BYTE, PREFACE_BYTES, vortexProtocol } from './protocol.ts';

/** Connections whose first bytes have not come. */
const MAX_WAITING = 64;
const FIRST_BYTES_MS = 5000;
/** After a connection that could not be taken. */
const PAUSE_MS = 100;

export interface ListenerEvents {
  /** A peer that speaks TLS or not, as this side does; the socket is the handler's. */
  onControl(socket: NodeSocket): void;
  /** A data connection; its token was read. False: nobody waits for it, and it is closed. */
  onData(socket: Socket, token: string): boolean;
  /** A peer was refused before it could say anything. */
  onRefused(reason: string): void;
}

export class Listener implements Disposable {
  readonly port: number;
  readonly #socket: Socket;
  #watch: FdWatch;
  #pause: NodeJS.Timeout | undefined;
  readonly #security: ControlSecurity;
  readonly #peerName: string | undefined;
  readonly #events: ListenerEvents;
  readonly #scratch = SharedMemory.create({ sizeBytes: 4096, name: 'vortex-preface' });
  readonly #room = new WaitingRoom({ maxWaiting: MAX_WAITING, helloMs: FIRST_BYTES_MS });
  #isClosed = false;

  /** Without a host: at all addresses of this one. */
  constructor(
    host: string | undefined,
    port: number,
    security: ControlSecurity,
    peerName: string | undefined,
    events: ListenerEvents,
  ) {
    this.#security = security;
    this.#peerName = peerName;
    this.#events = events;
    using undo = new DisposableStack();
    undo.use(this.#scratch);
    this.#socket = undo.use(listenAt(host, port));
    const address = this.#socket.localAddress;
    this.port = address.family === 'unix' ? 0 : address.port;
    this.#watch = this.#startWatch();
    undo.move();
  }

  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#room.close('the listener is closed');
    clearTimeout(this.#pause);
    this.#watch.close();
    this.#socket.close();
    this.#scratch.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #accept(): void {
    for (let socket = this.#next(); socket !== undefined; socket = this.#next()) {
      new NewConnection(socket, this.#room, (connection) => this.#sort(connection));
    }
  }

  #next(): Socket | undefined {
    try {
      return this.#isClosed ? undefined : this.#socket.accept();
    } catch {
      // Most likely there are no descriptors left, and the peer still waits: without a pause the
      // watch would call at once again.
      this.#watch.close();
      this.#pause = setTimeout(() => {
        this.#watch = this.#startWatch();
      }, PAUSE_MS);
      return undefined;
    }
  }

  #startWatch(): FdWatch {
    const watch = FdWatch.start(this.#socket.fd, () => this.#accept());
    watch.hold(true);
    return watch;
  }

  /** Its first bytes are there, or it has ended. */
  #sort(connection: NewConnection): void {
    const { socket } = connection;
    const got = this.#peek(socket);
    if (got === AGAIN) return;
    const first = this.#bytes[0];
    const isPart = got > 0 && first === DATA_FIRST_BYTE && got < PREFACE_BYTES;
    if (isPart && !connection.isPart) {
      // So that it is not readable again before the rest is there, or never will be.
      socket.setOption('receiveLowWater', PREFACE_BYTES);
      connection.isPart = true;
      return;
    }
    connection.leave();
    if (got <= 0 || isPart) socket.close();
    else if (first === DATA_FIRST_BYTE) this.#takeData(socket);
    else this.#takeControl(socket, first === TLS_FIRST_BYTE);
  }

  #peek(socket: Socket): number {
    try {
      return socket.peek(this.#scratch, 0, PREFACE_BYTES);
    } catch {
      return 0;
    }
  }

  get #bytes(): Uint8Array {
    return new Uint8Array(this.#scratch.buffer, 0, PREFACE_BYTES);
  }

  #takeData(socket: Socket): void {
    socket.receive(this.#scratch, 0, PREFACE_BYTES);
    socket.setOption('receiveLowWater', 1);
    const token = Buffer.from(this.#bytes.subarray(1)).toString('hex');
    if (!this.#events.onData(socket, token)) socket.close();
  }

  #takeControl(socket: Socket, speaksTls: boolean): void {
    const node = new NodeSocket({ fd: socket.release(), readable: true, writable: true });
    node.on('error', () => {});
    if (this.#security.kind === 'insecure') {
      // A peer that speaks TLS cannot read our refusal, but its own error says that this is no TLS.
      this.#events.onControl(node);
    } else if (speaksTls) {
      acceptTls(node, this.#security, {
        onSecure: (secure, certificate) => {
          const problem = this.#peerName === undefined ? undefined : nameMismatch(certificate, this.#peerName);
          if (problem === undefined) this.#events.onControl(secure);
          else this.#refuse(problem, secure);
        },
        onFail: (reason, secure) => this.#refuse(reason, secure),
      });
    } else {
      this.#refuse('it speaks plain TCP, and this sender TLS', node);
    }
  }

  #refuse(reason: string, socket: NodeSocket | undefined): void {
    if (socket !== undefined) hangUp(socket, vortexProtocol.line({ kind: 'refused', reason }));
    if (!this.#isClosed) this.#events.onRefused(`a receiver was refused: ${reason}`);
  }
}

/** A connection before its first bytes. */
class NewConnection {
  readonly socket: Socket;
  readonly #watch: FdWatch;
  #guest: Guest | undefined;
  /** Some of its first bytes have come. */
  isPart = false;

  constructor(socket: Socket, room: WaitingRoom, onReadable: (connection: NewConnection) => void) {
    this.socket = socket;
    this.#watch = FdWatch.start(socket.fd, () => onReadable(this));
    this.#guest = room.enter(() => this.#close());
  }

  /** Its first bytes are there: from now on somebody else has the socket. */
  leave(): void {
    this.#guest?.leave();
    this.#watch.close();
  }

  #close(): void {
    this.#watch.close();
    this.socket.close();
  }
}

function listenAt(host: string | undefined, port: number): Socket {
  if (host !== undefined) return bound(host, port);
  try {
    return bound('::', port);
  } catch (error) {
    const hasNoIpv6 = error instanceof SystemError && /EAFNOSUPPORT|EADDRNOTAVAIL/.test(error.code);
    if (!hasNoIpv6) throw error;
    return bound('0.0.0.0', port);
  }
}

function bound(host: string, port: number): Socket {
  const address = ip(host, port);
  using undo = new DisposableStack();
  const socket = undo.use(Socket.stream(address.family));
  socket.setOption('reuseAddress', 1);
  if (address.family === 'ipv6') socket.setOption('ipv6Only', 0);
  socket.bind(address);
  socket.listen();
  undo.move();
  return socket;
}
