// Calls one peer and tells it what listens here, for as long as both live: calls again when the connection ends.

import { connect, type Socket } from 'node:net';
import { LineSplitter } from '../json-lines/index.ts';
import { MAX_ENDPOINTS_PER_LINE } from '../proxy/control/index.ts';
import { formatIpEndpoint, type IpEndpoint } from '../steering/index.ts';
import { decodeMessage, encodeMessage } from './announcement-protocol.ts';

export interface PeerSpec {
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

export interface PeerCallOptions {
  readonly peer: PeerSpec;
  /** Our own. */
  readonly name: string;
  /** Where the call comes from, so that the peer knows us by it. */
  readonly localAddress?: string;
  /** What listens here now. */
  readonly listeners: () => Iterable<IpEndpoint>;
  /** `isUp`: the peer answered; `reason` is why not. Told when it changes. */
  readonly onChange: (isUp: boolean, reason: string) => void;
}

export const ALIVE_MS = 2000;
/** A peer that has said nothing for so long is gone. */
export const SILENCE_MS = 4 * ALIVE_MS;
const FIRST_RETRY_MS = 100;
const LAST_RETRY_MS = 5000;
/** A peer that does not answer so long is not waited for: its server sees the relay's own address. */
const NAMING_MS = 1000;
/** More than this waits to be sent: the peer does not read. */
const MAX_UNSENT_BYTES = 4 * 1024 * 1024;

export class PeerCall implements Disposable {
  readonly #options: PeerCallOptions;
  #socket: Socket | undefined;
  #retry: NodeJS.Timeout | undefined;
  #alive: NodeJS.Timeout | undefined;
  #retryMs = FIRST_RETRY_MS;
  #isUp = false;
  #isClosed = false;
  /** Callers that the peer was told of and has not answered yet. */
  readonly #naming = new Map<string, () => void>();
  #reason = '';

  constructor(options: PeerCallOptions) {
    this.#options = options;
    this.#call();
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  tell(kind: 'announce' | 'withdraw', endpoints: readonly IpEndpoint[]): void {
    if (!this.#isUp) return;
    for (let at = 0; at < endpoints.length; at += MAX_ENDPOINTS_PER_LINE) {
      this.#send(encodeMessage({ kind, endpoints: endpoints.slice(at, at + MAX_ENDPOINTS_PER_LINE) }));
    }
  }

  /** Resolves when programs at the peer see `client` in the place of `local`, or when that cannot be had. */
  async setTrueClient(local: IpEndpoint, client: IpEndpoint): Promise<void> {
    if (!this.#isUp) return;
    const key = formatIpEndpoint(local);
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, NAMING_MS);
    this.#naming.set(key, resolve);
    this.#send(encodeMessage({ kind: 'caller', local, client }));
    await promise;
    clearTimeout(timer);
    this.#naming.delete(key);
  }

  forgetTrueClient(local: IpEndpoint): void {
    if (this.#isUp) this.#send(encodeMessage({ kind: 'forget', local }));
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#retry);
    clearInterval(this.#alive);
    this.#socket?.destroy();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #call(): void {
    const { peer, name, localAddress } = this.#options;
    const socket = connect({
      host: peer.host,
      port: peer.port,
      ...(localAddress === undefined ? {} : { localAddress }),
    });
    this.#socket = socket;
    this.#reason = 'the peer closed the connection';
    socket.setNoDelay(true);
    socket.setTimeout(SILENCE_MS, () => socket.destroy(new Error('the peer does not answer')));
    socket.on('connect', () => this.#send(encodeMessage({ kind: 'hello', name })));
    socket.on('data', this.#listener(socket));
    socket.on('error', (error: NodeJS.ErrnoException) => {
      this.#reason = error.code ?? error.message;
    });
    socket.on('close', () => this.#ended());
  }

  #listener(socket: Socket): (bytes: Uint8Array) => void {
    const lines = new LineSplitter();
    return (bytes) => {
      try {
        for (const line of lines.split(bytes)) this.#hear(line);
      } catch (error) {
        socket.destroy(new Error(`the peer sent ${error instanceof Error ? error.message : String(error)}`));
      }
    };
  }

  #hear(line: string): void {
    const message = decodeMessage(line);
    if (message.kind === 'refused') {
      this.#socket?.destroy(new Error(`the peer refused: ${message.reason}`));
      return;
    }
    if (message.kind === 'named') this.#naming.get(formatIpEndpoint(message.local))?.();
    if (message.kind !== 'hello' || this.#isUp) return;
    if (message.name !== this.#options.peer.name) {
      this.#socket?.destroy(new Error(`the peer calls itself ${message.name}`));
      return;
    }
    this.#isUp = true;
    this.#retryMs = FIRST_RETRY_MS;
    this.#alive = setInterval(() => this.#send(encodeMessage({ kind: 'alive' })), ALIVE_MS);
    this.tell('announce', [...this.#options.listeners()]);
    this.#options.onChange(true, '');
  }

  #send(line: string): void {
    const socket = this.#socket;
    if (socket === undefined || socket.destroyed) return;
    socket.write(line);
    if (socket.writableLength > MAX_UNSENT_BYTES) socket.destroy(new Error('the peer does not read'));
  }

  #ended(): void {
    clearInterval(this.#alive);
    const wasUp = this.#isUp;
    this.#isUp = false;
    for (const resolve of this.#naming.values()) resolve();
    if (this.#isClosed) return;
    const isFirstFailure = wasUp || this.#retryMs === FIRST_RETRY_MS;
    this.#retry = setTimeout(() => this.#call(), this.#retryMs);
    this.#retryMs = Math.min(this.#retryMs * 2, LAST_RETRY_MS);
    if (isFirstFailure) this.#options.onChange(false, this.#reason);
  }
}
