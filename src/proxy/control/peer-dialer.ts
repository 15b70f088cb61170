// Dials one peer until it is closed: again when the connection ends, and with growing delays when
// dialing fails.

import type { Socket } from 'node:net';
import { allClosed } from '../../json-lines/index.ts';
import { type Dialed, type DialFailure, dialFailure } from '../../tls/index.ts';
import { type ConnectionEnd, type ConnectionEvents, ControlConnection } from './control-connection.ts';
import { HELLO_MS } from './control-server.ts';
import type { HeartbeatSpec } from './control-spec.ts';
import type { Handshake } from './handshake.ts';

const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 2000;
/** So that peers that lost the same daemon do not all dial it again at the same moment. */
const JITTER = 0.2;
/** After a connection was up for so long, the delays start from the beginning. */
const STABLE_MS = 10_000;

interface PeerDialerOptions {
  readonly beat: HeartbeatSpec;
  readonly dial: () => Dialed;
  readonly makeHandshake: () => Handshake;
  readonly events: ConnectionEvents;
  /** Dialing failed. `isFault`: a person has to mend something. */
  readonly onFailed: (reason: string, isFault: boolean) => void;
}

export class PeerDialer implements AsyncDisposable {
  readonly #options: PeerDialerOptions;
  /** Also those that are still closing. */
  readonly #sockets = new Set<Socket>();
  #dialing: Socket | undefined;
  #connection: ControlConnection | undefined;
  #upSinceMs: number | undefined;
  #failures = 0;
  #retry: NodeJS.Timeout | undefined;
  #late: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(options: PeerDialerOptions) {
    this.#options = options;
    this.#dial();
  }

  async close(reason: string): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    clearTimeout(this.#late);
    this.#dialing?.destroy();
    this.#connection?.leave(reason);
    await allClosed(this.#sockets);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close('shutdown');
  }

  #dial(): void {
    const { socket, ready } = this.#options.dial();
    this.#sockets.add(socket);
    this.#dialing = socket;
    const fail = (error: NodeJS.ErrnoException): void => this.#failed(socket, dialFailure(error));
    const closed = (): void => this.#failed(socket, { reason: 'the peer closed the connection', isFault: false });
    socket.on('error', fail);
    socket.once('close', closed);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.once(ready, () => {
      socket.off('error', fail);
      socket.off('close', closed);
      this.#talk(socket);
    });
    this.#late = setTimeout(() => {
      const reason = `no hello within ${HELLO_MS} ms`;
      this.#connection?.lose(reason);
      this.#failed(socket, { reason, isFault: false });
      socket.destroy();
    }, HELLO_MS);
  }

  #talk(socket: Socket): void {
    this.#dialing = undefined;
    const { beat, events, makeHandshake } = this.#options;
    this.#connection = new ControlConnection(socket, makeHandshake(), beat, {
      onGreeted: (connection, hello) => {
        clearTimeout(this.#late);
        this.#upSinceMs = performance.now();
        events.onGreeted(connection, hello);
      },
      onMessage: (connection, message) => events.onMessage(connection, message),
      onEnd: (connection, end) => {
        this.#connection = undefined;
        this.#dialLater(end);
        events.onEnd(connection, end);
      },
    });
  }

  #failed(socket: Socket, { reason, isFault }: DialFailure): void {
    if (this.#dialing !== socket) return;
    this.#dialing = undefined;
    if (this.#isClosed) return;
    this.#dialLater({ kind: 'lost', reason });
    this.#options.onFailed(reason, isFault);
  }

  #dialLater({ kind }: ConnectionEnd): void {
    clearTimeout(this.#late);
    const upMs = this.#upSinceMs === undefined ? -1 : performance.now() - this.#upSinceMs;
    this.#upSinceMs = undefined;
    if (this.#isClosed) return;
    // Two daemons that refuse each other as soon as they are up must not dial in a tight loop.
    const isOrderly = kind === 'lost' || kind === 'left';
    if (upMs >= (isOrderly ? 0 : STABLE_MS)) this.#failures = 0;
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** this.#failures++, LAST_RETRY_MS);
    this.#retry = setTimeout(() => this.#dial(), delayMs * (1 + Math.random() * JITTER));
  }
}
