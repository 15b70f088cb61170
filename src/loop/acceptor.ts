// Listens, and accepts connections until none waits; pauses while the process has no descriptors
// left, and resets whoever waits too long for one.

import { isShortage, SystemError, unlessShort } from '../errors.ts';
import { type Address, Fd, monotonicNs, pollEvents, Socket, TimerFd } from '../native/index.ts';
import type { EventLoop, Resumable, Watched } from './event-loop.ts';
import { prepareLeg } from './leg-socket.ts';

/** The kernel takes what net.core.somaxconn allows. */
const BACKLOG = 65_535;
/** So many are accepted before other descriptors of the loop have their turn. */
const MAX_ACCEPTS = 64;
/** Descriptors may be freed without the acceptor noticing, so it tries again at this interval. */
const RETRY_NS = 100_000_000;

/** For so long a client waits for a descriptor. */
const MAX_WAIT_NS = 1_000_000_000;

export interface AcceptorOptions {
  readonly loop: EventLoop;
  readonly address: Address;
  /** Send and receive buffer of each accepted socket. */
  readonly bufferBytes: number;
  /**
   * Takes the socket over, also when it throws; unless it throws a shortage (see `isShortage`):
   * then the socket is offered again later.
   */
  readonly onAccept: (socket: Socket) => void;
  /**
   * Accepting pauses until there are descriptors again. Called once a shortage, however often
   * accepting is tried.
   */
  readonly onPause: (error: SystemError) => void;
  /** A client that waited for too long was reset. */
  readonly onTurnedAway: () => void;
  /** Default: 1 s. */
  readonly maxWaitNs?: number;
}

export class Acceptor implements Watched, Resumable, Disposable {
  readonly address: Address;
  readonly #options: AcceptorOptions;
  readonly listener: Socket;
  readonly #token: number;
  readonly #retry: RetryTimer;
  /** Accepted, and waiting for a descriptor that it needs besides its own. */
  #parked: Socket | undefined;
  #isPaused = false;
  /** Closed for a moment to accept and reset a client where there is no other descriptor. */
  #spare: Fd | undefined;
  #shortSinceNs = 0;
  /** From the first pause until all that wait were accepted: `onPause` is called once. */
  #isShort = false;

  constructor(options: AcceptorOptions) {
    const { loop, address, bufferBytes } = options;
    using undo = new DisposableStack();
    this.#options = options;
    this.listener = undo.use(Socket.stream(address.family));
    this.listener.setOption('reuseAddress', 1);
    if (address.family === 'ipv6') this.listener.setOption('ipv6Only', 1);
    prepareLeg(this.listener, bufferBytes);
    this.listener.bind(address);
    this.listener.listen(BACKLOG);
    this.address = this.listener.localAddress;
    this.#retry = undo.use(new RetryTimer(loop, () => this.reopen()));
    this.#token = loop.watch(this.listener.fd, pollEvents.in | pollEvents.edge, this);
    this.#spare = Fd.duplicateOf(this.listener.fd);
    undo.move();
  }

  onEvents(): void {
    if (!this.#isPaused) this.resume();
  }

  /** A descriptor is about to be closed: accepting goes on in the next turn. */
  reopen(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    this.#options.loop.again(this);
  }

  /** Accepts what waits. */
  resume(): void {
    if (this.#isPaused || this.listener.isClosed) return;
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
    this.#options.loop.again(this);
  }

  close(): void {
    if (this.listener.isClosed) return;
    this.#options.loop.unwatch(this.listener.fd, this.#token);
    this.listener.close();
    this.#retry.close();
    this.#parked?.close();
    this.#spare?.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #next(): Socket | undefined {
    const parked = this.#parked;
    this.#parked = undefined;
    return parked ?? this.listener.accept();
  }

  #admit(socket: Socket): void {
    try {
      this.#options.onAccept(socket);
    } catch (error) {
      if (isShortage(error)) this.#parked = socket;
      throw error;
    }
  }

  #pause(error: SystemError): void {
    const { onPause, maxWaitNs = MAX_WAIT_NS } = this.#options;
    const nowNs = monotonicNs();
    this.#isPaused = true;
    if (!this.#isShort) {
      this.#shortSinceNs = nowNs;
      onPause(error);
    }
    this.#isShort = true;
    if (nowNs - this.#shortSinceNs >= maxWaitNs) this.#turnAway();
    this.#retry.set();
  }

  /** Some of those who wait; the others when it is tried again. */
  #turnAway(): void {
    for (let count = 0; count < MAX_ACCEPTS; count++) {
      const socket = this.#acceptOnSpare();
      if (socket === undefined) return;
      socket.resetOnClose();
      socket.close();
      this.#options.onTurnedAway();
    }
  }

  #acceptOnSpare(): Socket | undefined {
    this.#spare?.close();
    this.#spare = undefined;
    const socket = unlessShort(() => this.#next());
    // Where the system has none, somebody else may have taken it: then it comes back with the next.
    if (socket === undefined) this.#spare = unlessShort(() => Fd.duplicateOf(this.listener.fd));
    return socket;
  }
}

/** Calls back some time after it was set. */
class RetryTimer implements Watched, Disposable {
  readonly #loop: EventLoop;
  readonly #timer = TimerFd.create();
  readonly #token: number;
  readonly #onTime: () => void;

  constructor(loop: EventLoop, onTime: () => void) {
    this.#loop = loop;
    this.#onTime = onTime;
    this.#token = loop.watch(this.#timer.fd, pollEvents.in, this);
  }

  set(): void {
    this.#timer.set(RETRY_NS);
  }

  onEvents(): void {
    if (this.#timer.take() > 0) this.#onTime();
  }

  close(): void {
    if (this.#timer.isClosed) return;
    this.#loop.unwatch(this.#timer.fd, this.#token);
    this.#timer.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}
