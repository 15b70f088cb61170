// The client of the control API that commands use: over the unix socket, with errors of one line.

import { type IncomingMessage, request } from 'node:http';
import { text } from 'node:stream/consumers';
import { type ErrorCode, errorCodes, MillraceError } from '../errors.ts';
import type { BackendStatus, ConnectionStatus, DaemonStatus } from '../status/index.ts';
import type { ConnectionFilter } from './connection-filter.ts';
import type { ErrorAnswer } from './errors.ts';

/** Longer than the server waits for its source, so that the server's own error arrives. */
const DEFAULT_TIMEOUT_MS = 10_000;

interface ApiClientOptions {
  readonly socketPath: string;
  /** How long to wait for one answer. */
  readonly timeoutMs?: number;
  /** What should answer, and the command that starts it. Default: the daemon, `millrace up`. */
  readonly who?: { readonly name: string; readonly command: string };
}

interface AskOptions {
  readonly signal?: AbortSignal;
}

export class ApiClient {
  readonly socketPath: string;
  readonly #timeoutMs: number;
  readonly #who: { readonly name: string; readonly command: string };

  constructor(options: ApiClientOptions) {
    const { socketPath, timeoutMs = DEFAULT_TIMEOUT_MS, who = { name: 'daemon', command: 'millrace up' } } = options;
    this.socketPath = socketPath;
    this.#timeoutMs = timeoutMs;
    this.#who = who;
  }

  /** Of a backend. */
  async guests(options: AskOptions = {}): Promise<BackendStatus> {
    return (await this.#ask('GET', '/v1/guests', options)) as BackendStatus;
  }

  async status(options: AskOptions = {}): Promise<DaemonStatus> {
    return (await this.#ask('GET', '/v1/status', options)) as DaemonStatus;
  }

  async connections(filter: ConnectionFilter = {}, options: AskOptions = {}): Promise<readonly ConnectionStatus[]> {
    const query = new URLSearchParams({ ...filter }).toString();
    const answer = await this.#ask('GET', `/v1/connections${query === '' ? '' : `?${query}`}`, options);
    return (answer as { connections: readonly ConnectionStatus[] }).connections;
  }

  /** `which`: a process id, or `10.0.0.1:40312->10.0.0.2:6379`. */
  async explain(which: string, options: AskOptions = {}): Promise<readonly string[]> {
    return linesOf(await this.#ask('GET', `/v1/explain?which=${encodeURIComponent(which)}`, options));
  }

  async reload(options: AskOptions = {}): Promise<readonly string[]> {
    return linesOf(await this.#ask('POST', '/v1/reload', options));
  }

  /** For trials: see StatusSource. */
  async breakLinks(peer: string, options: AskOptions = {}): Promise<readonly string[]> {
    return linesOf(await this.#ask('POST', `/v1/break?peer=${encodeURIComponent(peer)}`, options));
  }

  /** Every answer of version 1 is a document that says so. */
  async #ask(method: 'GET' | 'POST', path: string, { signal }: AskOptions): Promise<object> {
    const timeout = AbortSignal.timeout(this.#timeoutMs);
    const either = signal === undefined ? timeout : AbortSignal.any([signal, timeout]);
    let status: number;
    let body: string;
    try {
      const response = await this.#send(method, path, either);
      status = response.statusCode ?? 0;
      body = await text(response);
    } catch (error) {
      signal?.throwIfAborted();
      throw timeout.aborted ? this.#lateError(path) : this.#unreachable(error);
    }
    return this.#read(path, status, body);
  }

  #send(method: string, path: string, signal: AbortSignal): Promise<IncomingMessage> {
    const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
    request({ socketPath: this.socketPath, method, path, signal, agent: false, headers: { host: 'localhost' } })
      .once('response', resolve)
      .once('error', reject)
      .end();
    return promise;
  }

  #read(path: string, status: number, body: string): object {
    const document = parse(body);
    if (status === 200 && document?.v === 1) return document;
    const { error, code } = (document ?? {}) as Partial<ErrorAnswer>;
    if (typeof error === 'string') throw new MillraceError(knownCode(code), error);
    const what = status === 200 ? 'an answer of another version' : `status ${status}`;
    throw new MillraceError(
      'MILLRACE_ERR_FAILED',
      `get ${path} from ${this.socketPath}: ${what}; check that a millrace ${this.#who.name} of this version listens there`,
    );
  }

  #lateError(path: string): MillraceError {
    const message = `get ${path} from ${this.socketPath}: no answer within ${this.#timeoutMs / 1000} s (the ${this.#who.name} is stopped or overloaded)`;
    return new MillraceError('MILLRACE_ERR_FAILED', message);
  }

  #unreachable(error: unknown): MillraceError {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    const { name, command } = this.#who;
    if (code === 'EACCES' || code === 'EPERM') {
      const message = `connect to the ${name} on ${this.socketPath}: permission denied (run as root, or as the ${name}’s user)`;
      return new MillraceError('MILLRACE_ERR_PERMISSION', message, { cause: error });
    }
    if (code === 'ENOENT' || code === 'ECONNREFUSED' || code === 'ENOTSOCK') {
      const message = `no ${name} answers on ${this.socketPath} (start one with '${command}')`;
      return new MillraceError('MILLRACE_ERR_NOT_RUNNING', message, { cause: error });
    }
    // ECONNRESET and similar: it ended before it answered.
    const message = `get an answer from the ${name} on ${this.socketPath}: ${code} (it ended; start it with '${command}')`;
    return new MillraceError('MILLRACE_ERR_NOT_RUNNING', message, { cause: error });
  }
}

function parse(body: string): { readonly v?: unknown } | null {
  try {
    const value: unknown = JSON.parse(body);
    return typeof value === 'object' ? value : null;
  } catch {
    return null;
  }
}

function knownCode(code: unknown): ErrorCode {
  return typeof code === 'string' && Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'MILLRACE_ERR_FAILED';
}

function linesOf(answer: object): readonly string[] {
  return (answer as { lines: readonly string[] }).lines;
}
