// The TCP connection beside the queue pairs: client and server exchange parameters on it, and see
// when the peer is gone.

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { MillraceError, UsageError } from '../errors.ts';
import { readLine, writeLine } from '../json-lines/index.ts';

/** How long to wait for the next line of the peer. */
const timeoutMs = 10_000;

export class Conversation implements Disposable {
  readonly socket: Socket;
  readonly #signal: AbortSignal;
  #end: MillraceError | undefined;

  constructor(socket: Socket, signal: AbortSignal) {
    this.socket = socket;
    this.#signal = signal;
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 1000);
    const onEnd = (): void => {
      this.#end ??= new MillraceError(
        'MILLRACE_ERR_FAILED',
        'perf: the peer closed its connection before the test was over',
      );
    };
    // The listeners stay: an error ends the connection, and `check` throws it.
    socket.on('error', onEnd);
    socket.on('close', onEnd);
    socket.on('end', onEnd);
  }

  /** The address by which the peer reaches this machine. */
  get localAddress(): string {
    return (this.socket.localAddress ?? '127.0.0.1').replace(/^::ffff:/, '');
  }

  tell(value: object): void {
    writeLine(this.socket, value);
  }

  /** The peer's next line, which must come within `timeoutMs`. */
  async hear(): Promise<unknown> {
    using limit = this.timeLimit();
    return await readLine(this.socket, { signal: limit.signal });
  }

  /** The peer's next line, without a time limit. */
  async hearEventually(): Promise<unknown> {
    return readLine(this.socket, { signal: this.#signal });
  }

  /** A signal that aborts after `timeoutMs`. */
  timeLimit(): { readonly signal: AbortSignal } & Disposable {
    return timeLimit(this.#signal, 'the peer does not answer');
  }

  /** Throws when the run was aborted or the peer is gone. */
  check(): void {
    this.#signal.throwIfAborted();
    if (this.#end !== undefined) throw this.#end;
  }

  /** Lines that were told are still sent. */
  [Symbol.dispose](): void {
    this.socket.end(() => this.socket.destroy());
    this.socket.unref();
  }
}

/** Waits for one client. `onListening` is called with the port once it can connect. */
export async function accept(
  port: number,
  signal: AbortSignal,
  onListening: (port: number) => void,
): Promise<Conversation> {
  const server = createServer();
  try {
    server.listen(port);
    await once(server, 'listening', { signal });
    const address = server.address();
    onListening(typeof address === 'object' && address !== null ? address.port : port);
    const [socket] = await once(server, 'connection', { signal });
    return new Conversation(socket, signal);
  } catch (error) {
    if (codeOf(error) !== 'EADDRINUSE' && codeOf(error) !== 'EACCES') throw error;
    const reason = codeOf(error) === 'EACCES' ? 'not permitted' : 'it is in use';
    throw new MillraceError('MILLRACE_ERR_FAILED', `listen on port ${port}: ${reason}; choose another with -p`, {
      cause: error,
    });
  } finally {
    server.close();
  }
}

export async function dial(host: string, port: number, test: string, signal: AbortSignal): Promise<Conversation> {
  using limit = timeLimit(signal, `${host} port ${port} does not answer`);
  const socket = connect({ host, port });
  try {
    await once(socket, 'connect', { signal: limit.signal });
    return new Conversation(socket, signal);
  } catch (error) {
    socket.destroy();
    limit.signal.throwIfAborted();
    if (codeOf(error) === 'ECONNREFUSED') {
      const advice = `start one there first: millrace perf ${test}`;
      throw new MillraceError('MILLRACE_ERR_NOT_RUNNING', `no perf server on ${host} port ${port}; ${advice}`);
    }
    if (codeOf(error) === 'ENOTFOUND' || codeOf(error) === 'EAI_AGAIN')
      throw new UsageError(`there is no host ${host}`);
    throw new MillraceError('MILLRACE_ERR_FAILED', `connect to ${host} port ${port}: ${codeOf(error)}`, {
      cause: error,
    });
  }
}

function timeLimit(outer: AbortSignal, reason: string): { readonly signal: AbortSignal } & Disposable {
  const controller = new AbortController();
  const onTimeout = (): void =>
    controller.abort(new MillraceError('MILLRACE_ERR_FAILED', `perf: ${reason} (waited ${timeoutMs / 1000} s)`));
  const timer = setTimeout(onTimeout, timeoutMs);
  return { signal: AbortSignal.any([outer, controller.signal]), [Symbol.dispose]: () => clearTimeout(timer) };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
