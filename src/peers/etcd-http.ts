// HTTP to etcd's JSON gateway: a POST with one answer, or with a stream of answers, one per line.

import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { MillraceError } from '../errors.ts';
import { printable } from '../text/index.ts';

export interface EtcdTls {
  readonly ca?: Buffer;
  readonly cert?: Buffer;
  readonly key?: Buffer;
}

export interface EtcdServer {
  /** `http://host:port` */
  readonly endpoint: string;
  readonly tls?: EtcdTls;
  /** Limit for an answer, or for the first line of a stream. */
  readonly timeoutMs: number;
}

export class EtcdError extends MillraceError {
  /** 0 when there was no answer. */
  readonly status: number;

  constructor(endpoint: string, what: string, reason: string, status = 0, options?: ErrorOptions) {
    super('MILLRACE_ERR_FAILED', `etcd ${endpoint}: ${what}: ${printable(reason, 200)}`, options);
    this.name = 'EtcdError';
    this.status = status;
  }
}

/** Longer answers or lines are not from a sane etcd. */
const MAX_ANSWER_CHARS = 32 * 1024 * 1024;

// Each call has its own connection: a kept one breaks when etcd restarts, and calls are rare.
const httpAgent = new HttpAgent({ keepAlive: false });
// NODE_TLS_REJECT_UNAUTHORIZED of the environment would be the default of rejectUnauthorized.
const httpsAgent = new HttpsAgent({ keepAlive: false, rejectUnauthorized: true });

/** Returns the parsed answer. */
export async function post(
  server: EtcdServer,
  path: string,
  body: object,
  token: string,
  signal: AbortSignal,
): Promise<unknown> {
  const limit = AbortSignal.any([signal, AbortSignal.timeout(server.timeoutMs)]);
  try {
    const response = await send(server, path, body, token, limit);
    let answer = '';
    for await (const chunk of response.setEncoding('utf8')) {
      answer += String(chunk);
      if (answer.length > MAX_ANSWER_CHARS) throw new Error(`the answer is longer than ${MAX_ANSWER_CHARS} characters`);
    }
    return parseAnswer(server.endpoint, path, answer);
  } catch (error) {
    throw asEtcdError(error, server, path, signal);
  }
}

/** Yields the answers as they arrive, until the connection ends. */
export async function* follow(
  server: EtcdServer,
  path: string,
  body: object,
  token: string,
  signal: AbortSignal,
): AsyncGenerator<unknown> {
  const quiet = new AbortController();
  const timer = setTimeout(() => quiet.abort(new DOMException('', 'TimeoutError')), server.timeoutMs);
  try {
    const response = await send(server, path, body, token, AbortSignal.any([signal, quiet.signal]));
    let rest = '';
    for await (const chunk of response.setEncoding('utf8')) {
      const lines = (rest + String(chunk)).split('\n');
      rest = lines.pop() ?? '';
      if (rest.length > MAX_ANSWER_CHARS) throw new Error(`a line is longer than ${MAX_ANSWER_CHARS} characters`);
      for (const line of lines) {
        clearTimeout(timer);
        if (line !== '') yield parseAnswer(server.endpoint, path, line);
      }
    }
  } catch (error) {
    throw asEtcdError(error, server, path, signal);
  } finally {
    clearTimeout(timer);
    // Also ends the connection when the reader stops early.
    quiet.abort();
  }
}

async function send(
  { endpoint, tls }: EtcdServer,
  path: string,
  body: object,
  token: string,
  signal: AbortSignal,
): Promise<IncomingMessage> {
  signal.throwIfAborted();
  const url = new URL(`/v3/${path}`, endpoint);
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const headers = { 'content-type': 'application/json', ...(token !== '' && { authorization: token }) };
  const options = { method: 'POST', headers, signal };
  const request: ClientRequest =
    url.protocol === 'https:'
      ? httpsRequest(url, { ...options, ...tls, rejectUnauthorized: true, agent: httpsAgent })
      : httpRequest(url, { ...options, agent: httpAgent });
  request.on('response', resolve);
  request.on('error', reject);
  request.on('socket', (socket) => socket.setKeepAlive(true, 10_000));
  request.end(JSON.stringify(body));
  const response = await promise;
  // An error after the answer began also ends the response, which reports it.
  request.on('error', () => {});
  const { statusCode = 0 } = response;
  if (statusCode === 200) return response;
  throw new EtcdError(endpoint, path, reasonOf(await text(response), statusCode), statusCode);
}

function reasonOf(answer: string, status: number): string {
  try {
    const { error } = JSON.parse(answer) as { readonly error?: unknown };
    if (typeof error === 'string') return error;
  } catch {
    // The answer is not from etcd but from a proxy in front of it, say.
  }
  return `HTTP ${status}`;
}

function parseAnswer(endpoint: string, path: string, answer: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(answer);
  } catch (error) {
    throw new EtcdError(endpoint, path, 'the answer is not JSON', 0, { cause: error });
  }
  // Streams wrap their answers and errors.
  if (typeof value !== 'object' || value === null) throw new EtcdError(endpoint, path, 'the answer is not an object');
  if ('error' in value) throw new EtcdError(endpoint, path, JSON.stringify(value.error));
  return 'result' in value ? value.result : value;
}

function asEtcdError(error: unknown, server: EtcdServer, path: string, signal: AbortSignal): unknown {
  if (signal.aborted || error instanceof EtcdError) return error;
  const { name, code, message } = error as NodeJS.ErrnoException;
  const isTimeout = name === 'AbortError' || name === 'TimeoutError';
  const reason = isTimeout ? `no answer within ${server.timeoutMs} ms` : (code ?? message);
  return new EtcdError(server.endpoint, path, reason, 0, { cause: error });
}
