// Dials one peer, for as long as it is wanted: dials again when the connection ends, ever more slowly when it fails.

import type { Socket } from 'node:net';
import { allClosed } from '../../json-lines/index.ts';
import { type Dialed, type DialFailure, dialFailure } from '../../tls/index.ts';
import { type ConnectionEnd, type ConnectionEvents, ControlConnection } from './control-connection.ts';
import { HELLO_MS } from './control-server.ts';
import type { HeartbeatSpec } from './control-spec.ts';
import type { Handshake } from './handshake.ts';

const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 2000;
/** So that peers who lost the same daemon do not all come back in the same moment. */
const JITTER = 0.2;
/** Up for so long, it is not the same failure over and over. */
const STABLE_MS = 10_000;

interface PeerDialerOptions {
  readonly beat: HeartbeatSpec;
  readonly dial: () => Dialed;
  readonly makeHandshake: () => Handshake;
  readonly events: ConnectionEvents;
  /** A call came to nothing before there was a connection. `isFault`: for people to mend. */
  readonly onFailed: (reason: string, isFault: boolean) => void;
}

export class PeerDialer implements AsyncDisposable {
  readonly #options: PeerDialerOptions;
  /** Those that are not quite closed, too. */
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
    this.#call();
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

  #call(): void {
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
        this.#callLater(end);
        events.onEnd(connection, end);
      },
    });
  }

  #failed(socket: Socket, { reason, isFault }: DialFailure): void {
    if (this.#dialing !== socket) return;
    this.#dialing = undefined;
    if (this.#isClosed) return;
    this.#callLater({ kind: 'lost', reason });
    this.#options.onFailed(reason, isFault);
  }

  #callLater({ kind }: ConnectionEnd): void {
    clearTimeout(this.#late);
    const upMs = this.#upSinceMs === undefined ? -1 : performance.now() - this.#upSinceMs;
    this.#upSinceMs = undefined;
    if (this.#isClosed) return;
    // A peer that is refused, or refuses, as soon as it is up is in no hurry.
    const isHonest = kind === 'lost' || kind === 'left';
    if (upMs >= (isHonest ? 0 : STABLE_MS)) this.#failures = 0;
    const delayMs = Math.min(FIRST_RETRY_MS * 2 ** this.#failures++, LAST_RETRY_MS);
    this.#retry = setTimeout(() => this.#call(), delayMs * (1 + Math.random() * JITTER));
  }
}
