// Where connections come in: accepts until nobody waits, and pauses while the process has no descriptors left.

import { SystemError } from '../errors.ts';
import { type Address, pollEvents, Socket, TimerFd } from '../native/index.ts';
import type { EventLoop, Resumable, Watched } from './event-loop.ts';
import { prepareLeg } from './leg-socket.ts';

/** The kernel takes what net.core.somaxconn allows. */
const BACKLOG = 65_535;
/** Accepted before the others of the lane have their turn. */
const MAX_ACCEPTS = 64;
/** Descriptors may be freed without the acceptor noticing, so it tries again at this interval. */
const RETRY_NS = 100_000_000;
const shortages: ReadonlySet<string> = new Set(['EMFILE', 'ENFILE', 'ENOBUFS', 'ENOMEM']);

export interface AcceptorOptions {
  readonly lane: EventLoop;
  readonly address: Address;
  /** Of each accepted socket; they inherit it. */
  readonly bufferBytes: number;
  /** Other lanes have doors at the same address: the kernel spreads the callers. */
  readonly isShared?: boolean;
  /** Takes the socket over, also when it throws; unless it throws a shortage (see `isShortage`): then it is asked again later. */
  readonly onCaller: (socket: Socket) => void;
  /** Accepting pauses until there is room again. Told once, however often that is tried. */
  readonly onPause: (error: SystemError) => void;
}

export class Acceptor implements Watched, Resumable, Disposable {
  readonly address: Address;
  readonly #options: AcceptorOptions;
  readonly #listener: Socket;
  readonly #token: number;
  readonly #retry: RetryTimer;
  /** Accepted, and there was no descriptor for what it needs. */
  #parked: Socket | undefined;
  #isPaused = false;
  /** From the first pause until everybody who waits was accepted: told once. */
  #isShort = false;

  constructor(options: AcceptorOptions) {
    const { lane, address, bufferBytes } = options;
    using undo = new DisposableStack();
    this.#options = options;
    this.#listener = undo.use(Socket.stream(address.family));
    this.#listener.setOption('reuseAddress', 1);
    if (options.isShared === true) this.#listener.setOption('reusePort', 1);
    if (address.family === 'ipv6') this.#listener.setOption('ipv6Only', 1);
    prepareLeg(this.#listener, bufferBytes);
    this.#listener.bind(address);
    this.#listener.listen(BACKLOG);
    this.address = this.#listener.localAddress;
    this.#retry = undo.use(new RetryTimer(lane, () => this.reopen()));
    this.#token = lane.watch(this.#listener.fd, pollEvents.in | pollEvents.edge, this);
    undo.move();
  }

  onEvents(): void {
    if (!this.#isPaused) this.resume();
  }

  /** Something is being closed: in the next turn there may be descriptors again. */
  reopen(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#options.lane.again(this);
  }

  /** Accepts who waits. */
  resume(): void {
    if (this.#isPaused || this.#listener.isClosed) return;
    try {
      for (let count = 0; count < MAX_ACCEPTS; count++) {
        const socket = this.#next();
        if (socket === undefined) {
          this.#isShort = false;
          return;
        }
        this.#admit(socket);
      }
    } catch (error) {
      if (!(error instanceof SystemError) || !isShortage(error)) throw error;
      this.#pause(error);
      return;
    }
    this.#options.lane.again(this);
  }

  close(): void {
    if (this.#listener.isClosed) return;
    this.#options.lane.unwatch(this.#listener.fd, this.#token);
    this.#listener.close();
    this.#retry.close();
    this.#parked?.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #next(): Socket | undefined {
    const parked = this.#parked;
    this.#parked = undefined;
    if (parked !== undefined) return parked;
    for (;;) {
      try {
        return this.#listener.accept();
      } catch (error) {
        // Gone before it was accepted: the next one.
        if (!(error instanceof SystemError) || error.code !== 'ECONNABORTED') throw error;
      }
    }
  }

  #admit(socket: Socket): void {
    try {
      this.#options.onCaller(socket);
    } catch (error) {
      if (isShortage(error)) this.#parked = socket;
      throw error;
    }
  }

  #pause(error: SystemError): void {
    this.#isPaused = true;
    if (!this.#isShort) this.#options.onPause(error);
    this.#isShort = true;
    this.#retry.set();
  }
}

/** The process or the machine has run out of something, for now. */
export function isShortage(error: unknown): boolean {
  return error instanceof SystemError && shortages.has(error.code);
}

/** Calls back some time after it was set. */
class RetryTimer implements Watched, Disposable {
  readonly #lane: EventLoop;
  readonly #timer = TimerFd.create();
  readonly #token: number;
  readonly #onTime: () => void;

  constructor(lane: EventLoop, onTime: () => void) {
    this.#lane = lane;
    this.#onTime = onTime;
    this.#token = lane.watch(this.#timer.fd, pollEvents.in, this);
  }

  set(): void {
    this.#timer.set(RETRY_NS);
  }

  onEvents(): void {
    if (this.#timer.take() > 0) this.#onTime();
  }

  close(): void {
    if (this.#timer.isClosed) return;
    this.#lane.unwatch(this.#timer.fd, this.#token);
    this.#timer.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
