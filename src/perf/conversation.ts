// The TCP connection beside the queue pairs: how client and server meet, and notice that the other is gone.

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { MillraceError, UsageError } from '../errors.ts';
import { readLine, writeLine } from '../json-lines/index.ts';

/** A peer that says nothing for so long while it should is not coming. */
const patienceMs = 10_000;

export class Conversation implements Disposable {
  readonly socket: Socket;
  readonly #signal: AbortSignal;
  #end: MillraceError | undefined;

  constructor(socket: Socket, signal: AbortSignal) {
    this.socket = socket;
    this.#signal = signal;
    socket.setNoDelay(true);
    socket.setKeepAlive(true, 1000);
    const note = (): void => {
      this.#end ??= new MillraceError('MILLRACE_ERR_FAILED', 'perf: the peer went away before the test was over');
    };
    // Stays for good: an error of the connection is its end, and told when somebody looks.
    socket.on('error', note);
    socket.on('close', note);
    socket.on('end', note);
  }

  /** The address by which the peer reaches this machine. */
  get localAddress(): string {
    return (this.socket.localAddress ?? '127.0.0.1').replace(/^::ffff:/, '');
  }

  tell(value: object): void {
    writeLine(this.socket, value);
  }

  /** What the peer says next, within some seconds. */
  async hear(): Promise<unknown> {
    using limit = this.timeLimit();
    return await readLine(this.socket, { signal: limit.signal });
  }

  /** What the peer says next, whenever. */
  async hearEventually(): Promise<unknown> {
    return readLine(this.socket, { signal: this.#signal });
  }

  /** A signal for what must not take long. */
  timeLimit(): { readonly signal: AbortSignal } & Disposable {
    return timeLimit(this.#signal, 'the peer says nothing');
  }

  /** Throws when the user wants to stop or the peer is gone. */
  check(): void {
    this.#signal.throwIfAborted();
    if (this.#end !== undefined) throw this.#end;
  }

  /** What was told is still sent. */
  [Symbol.dispose](): void {
    this.socket.end(() => this.socket.destroy());
    this.socket.unref();
  }
}

/** Waits for one client. `onListening` is called when there is something to connect to. */
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
    const reason = codeOf(error) === 'EACCES' ? 'it needs more rights' : 'it is in use';
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
  const giveUp = (): void =>
    controller.abort(new MillraceError('MILLRACE_ERR_FAILED', `perf: ${reason} (waited ${patienceMs / 1000} s)`));
  const timer = setTimeout(giveUp, patienceMs);
  return { signal: AbortSignal.any([outer, controller.signal]), [Symbol.dispose]: () => clearTimeout(timer) };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
