// The relay: takes connections that were steered here and carries them to where they were meant to go, over plain TCP.

import { MillraceError, SystemError, UsageError } from '../errors.ts';
import { Acceptor, EventLoop, isShortage, LoopDriver, prepareLeg, SourcePorts } from '../loop/index.ts';
import { type Address, formatAddress, Socket } from '../native/index.ts';
import type { CarriedConnection, ConnectionEnd } from './carried-connection.ts';
import { Pump } from './pump.ts';

/** What the relay asks of the steering, and tells it. */
export interface RelaySteering {
  /** What a connection that was just accepted is about; undefined when it was not steered here. */
  take(client: Address): { readonly original: Address } | undefined;
  /** Before the server at `original` is called from `local`: it is to see `client`. A promise is waited for, and does not reject. */
  setTrueClient(local: Address, client: Address, original: Address): Promise<void> | undefined | void;
  forgetTrueClient(local: Address, original: Address): void;
}

export interface RelayOptions {
  /** One or several addresses. Where the port is 0, the second and later ones get the port of the first. */
  readonly listen: readonly Address[];
  readonly steering: RelaySteering;
  readonly bufferBytes?: number;
  /** Something that people should know and that goes on: out of descriptors, out of ports. */
  readonly onError?: (error: MillraceError) => void;
}

export interface RelayCounters {
  readonly accepted: number;
  /** Came here without having been steered. */
  readonly strangers: number;
  /** The server refused, or could not be reached. */
  readonly unreachable: number;
  readonly resets: number;
  readonly open: number;
  readonly bytesToServer: number;
  readonly bytesToClient: number;
}

export interface RelayConnection {
  readonly client: Address;
  readonly original: Address;
  /** The relay's own address towards the server. */
  readonly local: Address;
  readonly state: 'connecting' | 'open';
  readonly bytesToServer: number;
  readonly bytesToClient: number;
  /** By the wall clock. */
  readonly since: Date;
}

/**
 * Of each of the relay's sockets, each way; the kernel doubles it for its bookkeeping. Fixed rather than left to the
 * kernel, which may let a receive buffer grow to 32 MiB: a stopped receiver must stop its sender before that.
 */
const SOCKET_BUFFER_BYTES = 2 * 1024 * 1024;

interface About {
  readonly client: Address;
  readonly original: Address;
  readonly local: Address;
}

interface Carried extends About {
  readonly connection: CarriedConnection;
  readonly sinceMs: number;
}

export class Relay implements Disposable {
  /** Where it listens. */
  readonly addresses: readonly Address[];
  readonly #steering: RelaySteering;
  readonly #onError: (error: MillraceError) => void;
  readonly #lane: EventLoop;
  readonly #pump: Pump;
  readonly #doors: Acceptor[] = [];
  readonly #carried = new Set<Carried>();
  readonly #ports = new SourcePorts();
  /** Clients whose server is not called yet: how to refuse them. */
  readonly #waiting = new Set<() => void>();
  readonly #undo: DisposableStack;
  #accepted = 0;
  #strangers = 0;
  #unreachable = 0;
  #resets = 0;
  #isClosed = false;

  static start(options: RelayOptions): Relay {
    return new Relay(options);
  }

  private constructor(options: RelayOptions) {
    const { listen, steering, bufferBytes, onError = () => {} } = options;
    if (listen.length === 0) throw new UsageError('a relay needs an address to listen on');
    using undo = new DisposableStack();
    this.#steering = steering;
    this.#onError = onError;
    this.#lane = undo.use(new EventLoop());
    this.#pump = undo.use(new Pump(this.#lane, bufferBytes === undefined ? {} : { bufferBytes }));
    for (const address of listen) this.#doors.push(undo.use(this.#open(withPort(address, this.#doors[0]?.address))));
    this.addresses = this.#doors.map(({ address }) => address);
    undo.use(new LoopDriver(this.#lane));
    this.#undo = undo.move();
  }

  get counters(): RelayCounters {
    return {
      accepted: this.#accepted,
      strangers: this.#strangers,
      unreachable: this.#unreachable,
      resets: this.#resets,
      open: this.#carried.size,
      ...this.#pump.totals,
    };
  }

  /** Memory for bytes that wait in the relay itself. */
  get bufferBytes(): number {
    return this.#pump.pool.heldBytes;
  }

  /** Of those, the buffers that hold bytes whose receiver is slow. */
  get borrowedBuffers(): number {
    return this.#pump.pool.borrowedCount - 1; // the one to receive into
  }

  /** Of now. */
  get connections(): readonly RelayConnection[] {
    return Array.from(this.#carried, ({ connection, client, original, local, sinceMs }) => ({
      client,
      original,
      local,
      state: connection.isConnecting ? 'connecting' : 'open',
      bytesToServer: connection.client.receivedBytes,
      bytesToClient: connection.server.receivedBytes,
      since: new Date(sinceMs),
    }));
  }

  /** Nobody else is accepted, and what is open is reset. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    for (const refuseOne of this.#waiting) refuseOne();
    this.#waiting.clear();
    this.#undo.dispose();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #open(address: Address): Acceptor {
    try {
      return new Acceptor({
        lane: this.#lane,
        address,
        bufferBytes: SOCKET_BUFFER_BYTES,
        onCaller: (socket) => this.#admit(socket, address.family === 'ipv6' ? 'ipv6' : 'ipv4'),
        onPause: ({ code }) => {
          const open = this.#carried.size;
          this.#reportError(`accept connections: ${code} with ${open} open (raise LimitNOFILE); new ones wait`);
        },
      });
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      throw new MillraceError('MILLRACE_ERR_FAILED', `listen on ${formatAddress(address)}: ${reasonOf(error)}`, {
        cause: error,
      });
    }
  }

  #reportError(message: string): void {
    this.#onError(new MillraceError('MILLRACE_ERR_FAILED', message));
  }

  #admit(caller: Socket, family: 'ipv4' | 'ipv6'): void {
    // First what can run out: the caller is asked again when it has.
    const server = Socket.stream(family);
    this.#accepted++;
    let about: About | undefined;
    try {
      const client = caller.peerAddress;
      const original = this.#steering.take(client)?.original;
      if (original === undefined) {
        this.#strangers++;
        refuse(caller, server);
        return;
      }
      prepareLeg(server, SOCKET_BUFFER_BYTES);
      about = { client, original, local: this.#ports.bind(server, sourceTowards(original, caller.localAddress)) };
      // First: the server may look as soon as the connect is on its way.
      const naming = this.#steering.setTrueClient(about.local, client, original);
      if (naming instanceof Promise) this.#callLater(caller, server, about, naming);
      else this.#call(caller, server, about);
    } catch (error) {
      this.#failed(caller, server, about, error);
    }
  }

  #callLater(caller: Socket, server: Socket, about: About, naming: Promise<void>): void {
    const undo = (): void => refuse(caller, server);
    this.#waiting.add(undo);
    void naming.then(() => {
      if (!this.#waiting.delete(undo)) return;
      try {
        this.#call(caller, server, about);
      } catch (error) {
        this.#failed(caller, server, about, error);
      }
    });
  }

  #call(caller: Socket, server: Socket, about: About): void {
    const isConnecting = !server.connect(about.original);
    const connection = this.#pump.carry(caller, server, isConnecting, (end) => this.#ended(carried, end));
    const carried: Carried = { ...about, connection, sinceMs: Date.now() };
    this.#carried.add(carried);
  }

  #forget({ local, original }: About): void {
    this.#steering.forgetTrueClient(local, original);
    this.#ports.release(local);
  }

  #failed(caller: Socket, server: Socket, about: About | undefined, error: unknown): void {
    refuse(caller, server);
    if (about !== undefined) this.#forget(about);
    if (!(error instanceof SystemError)) throw error;
    if (error.code === 'ENOTCONN') {
      // The client was reset before it was accepted, and has no address any more.
      this.#resets++;
      return;
    }
    this.#unreachable++;
    if (isShortage(error) || error.code === 'EADDRINUSE' || error.code === 'EADDRNOTAVAIL') {
      this.#reportError(`call a server: ${error.message}; the client was reset`);
    }
  }

  #ended(carried: Carried, end: ConnectionEnd): void {
    this.#carried.delete(carried);
    this.#forget(carried);
    if (end.kind === 'reset') this.#resets++;
    if (end.kind === 'unreachable') this.#unreachable++;
    for (const door of this.#doors) door.reopen();
  }
}

function withPort(address: Address, first: Address | undefined): Address {
  if (address.family === 'unix') throw new UsageError('a relay listens on IP addresses');
  return address.port === 0 && first !== undefined && first.family !== 'unix'
    ? { ...address, port: first.port }
    : address;
}

/** The address of this host by which the client came in: it is one of the host's own, and the same family. */
function sourceTowards(original: Address, local: Address): string {
  if (original.family === 'unix' || local.family === 'unix') throw new UsageError('a relay carries TCP');
  return local.host;
}

function refuse(caller: Socket, server: Socket): void {
  server.close();
  if (caller.isClosed) return;
  caller.resetOnClose();
  caller.close();
}

function reasonOf(error: SystemError): string {
  if (error.code === 'EADDRINUSE') return 'the port is in use; choose another with --listen ADDR:PORT';
  if (error.code === 'EADDRNOTAVAIL') return 'this host has no such address';
  if (error.code === 'EACCES') return 'ports below 1024 need more rights';
  return error.code;
}
