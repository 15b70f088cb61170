// The daemon's front door: the control API on a unix socket and, where configured, on a local TCP address.

import { createServer, type Server } from 'node:http';
import { isIP } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Hono } from 'hono';
import { MillraceError } from '../errors.ts';
import type { StatusSource } from '../proxy/status.ts';
import type { EventStream } from './event-stream.ts';
import { routes } from './routes.ts';
import { listenUnix } from './unix-socket.ts';

const MAX_HEADER_BYTES = 8192;
const MAX_CONNECTIONS = 256;
const REQUEST_TIMEOUT_MS = 10_000;
const DEFAULT_TIMEOUT_MS = 5000;
/** For answers under way when the server closes. */
const GRACE_MS = 500;

export interface ServerOptions {
  readonly source: StatusSource;
  /** See socketPathOf. */
  readonly socketPath: string;
  /** Port 0 takes any that is free. */
  readonly http?: { readonly host: string; readonly port: number };
  /** How long the source may take for an answer. Default: 5 s. */
  readonly timeoutMs?: number;
}

export interface ControlServer extends AsyncDisposable {
  readonly socketPath: string;
  /** As `http://127.0.0.1:4791`; null without the TCP side. */
  readonly url: string | null;
  /** Removes the socket first, so that a successor can start. */
  close(): Promise<void>;
}

/** All of it, or nothing. Throws 'already running' when a living daemon has the socket. */
export async function startServer(options: ServerOptions): Promise<ControlServer> {
  const { source, socketPath, http, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  const streams = new Set<EventStream>();
  const shared = { source, timeoutMs, streams };
  await using undo = new AsyncDisposableStack();
  const local = serverOf(routes(shared));
  undo.defer(() => closeServer(local));
  const unpublish = await listenUnix(local, socketPath);
  undo.defer(unpublish);
  let url: string | null = null;
  if (http !== undefined) {
    const tcp = serverOf(routes({ ...shared, tcpHost: http.host }));
    undo.defer(() => closeServer(tcp));
    url = urlOf(http.host, await listenTcp(tcp, http.host, http.port));
  }
  // Last in, first out: listeners of events are let go before their servers wait for them.
  undo.defer(() => {
    for (const stream of streams) stream.close();
  });
  const all = undo.move();
  const close = async (): Promise<void> => {
    unpublish();
    await all.disposeAsync();
  };
  return { socketPath, url, close, [Symbol.asyncDispose]: close };
}

function serverOf(app: Hono): Server {
  // overrideGlobalObjects: a library must not replace Request and Response for everybody.
  const listener = getRequestListener(app.fetch, { overrideGlobalObjects: false });
  const server = createServer(
    { maxHeaderSize: MAX_HEADER_BYTES, requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    (request, response) => void listener(request, response),
  );
  server.maxConnections = MAX_CONNECTIONS;
  return server;
}

async function listenTcp(server: Server, host: string, port: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen({ host, port }, resolve);
  try {
    await promise;
  } catch (error) {
    const { code = 'unknown error' } = error as NodeJS.ErrnoException;
    const advice = code === 'EADDRINUSE' ? ' (another program listens there; choose another port)' : '';
    throw new MillraceError('MILLRACE_ERR_FAILED', `listen on ${urlOf(host, port)}: ${code}${advice}`, {
      cause: error,
    });
  } finally {
    server.off('error', reject);
  }
  const address = server.address();
  return typeof address === 'object' && address !== null ? address.port : port;
}

function urlOf(host: string, port: number): string {
  return `http://${isIP(host) === 6 ? `[${host}]` : host}:${port}`;
}

async function closeServer(server: Server): Promise<void> {
  if (!server.listening) return;
  const { promise, resolve } = Promise.withResolvers<void>();
  const timer = setTimeout(() => server.closeAllConnections(), GRACE_MS);
  server.close(() => resolve());
  await promise;
  clearTimeout(timer);
}
