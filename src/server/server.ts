// Serves the API of a daemon or a backend on a unix socket and, where configured, on a local TCP
// address.

import { createServer, type Server } from 'node:http';
import { isIP } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { Hono } from 'hono';
import { MillraceError } from '../errors.ts';
import type { BackendStatus, StatusSource } from '../status/index.ts';
import { backendRoutes } from './backend-routes.ts';
import { limitConnections } from './connection-limit.ts';
import type { EventStream } from './event-stream.ts';
import { routes } from './routes.ts';
import { listenUnix } from './unix-socket.ts';

const MAX_HEADER_BYTES = 8192;
/** Of the control socket, which only its owner can reach. */
const MAX_CONTROL_CONNECTIONS = 256;
/** Of the HTTP port, which everybody on this host can reach. */
const MAX_HTTP_CONNECTIONS = 256;
/** Fewer than that: connections that arrive together do not push each other out. */
const HTTP_BACKLOG = 128;
const HEADERS_TIMEOUT_MS = 5000;
const REQUEST_TIMEOUT_MS = 10_000;
/** Of a connection on which nothing moves. Event streams have a heartbeat every 15 s. */
const SILENCE_TIMEOUT_MS = 40_000;
/** How often those time limits are looked at. */
const CHECK_INTERVAL_MS = 1000;
const DEFAULT_TIMEOUT_MS = 5000;
/** How long answers may go on when the server closes. */
const GRACE_MS = 500;

/** Where an API is reached. */
interface ServerAddress {
  /** See socketPathOf. */
  readonly socketPath: string;
  /** Port 0 takes any that is free. */
  readonly http?: { readonly host: string; readonly port: number };
}

interface AnswerOptions {
  /** How long the source may take for an answer. Default: 5 s. */
  readonly timeoutMs?: number;
}

interface ServerOptions extends ServerAddress, AnswerOptions {
  readonly source: StatusSource;
}

interface BackendServerOptions extends ServerAddress, AnswerOptions {
  readonly status: () => Promise<BackendStatus>;
}

export interface ControlServer extends AsyncDisposable {
  readonly socketPath: string;
  /** For example `http://127.0.0.1:4792`; null without a TCP listener. */
  readonly url: string | null;
  /** Removes the socket first, so that a successor can start. */
  close(): Promise<void>;
}

/** All of it, or nothing. Throws 'already running' when a living daemon has the socket. */
export async function startServer(options: ServerOptions): Promise<ControlServer> {
  const { source, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  // A set for each listener: who fills that of the HTTP port leaves the control socket's free.
  const sets: Set<EventStream>[] = [];
  const app = (tcpHost?: string): Hono => {
    const streams = new Set<EventStream>();
    sets.push(streams);
    return routes({ source, timeoutMs, streams, ...(tcpHost !== undefined && { tcpHost }) });
  };
  return serve(app, options, () => {
    for (const stream of sets.flatMap((streams) => [...streams])) stream.close();
  });
}

/** The same for a backend. */
export async function startBackendServer(options: BackendServerOptions): Promise<ControlServer> {
  const { status, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  const app = (tcpHost?: string): Hono =>
    backendRoutes({ status, timeoutMs, ...(tcpHost !== undefined && { tcpHost }) });
  return serve(app, options, () => {});
}

async function serve(
  app: (tcpHost?: string) => Hono,
  { socketPath, http }: ServerAddress,
  hangUp: () => void,
): Promise<ControlServer> {
  await using undo = new AsyncDisposableStack();
  const local = serverOf(app());
  local.maxConnections = MAX_CONTROL_CONNECTIONS;
  undo.defer(() => closeServer(local));
  const unpublish = await listenUnix(local, socketPath);
  undo.defer(unpublish);
  let url: string | null = null;
  if (http !== undefined) {
    const tcp = serverOf(app(http.host));
    limitConnections(tcp, MAX_HTTP_CONNECTIONS);
    undo.defer(() => closeServer(tcp));
    url = urlOf(http.host, await listenTcp(tcp, http.host, http.port));
  }
  // Undone first: event streams end before their servers wait for open connections.
  undo.defer(hangUp);
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
    {
      maxHeaderSize: MAX_HEADER_BYTES,
      requestTimeout: REQUEST_TIMEOUT_MS,
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_INTERVAL_MS,
    },
    (request, response) => void listener(request, response),
  );
  server.timeout = SILENCE_TIMEOUT_MS;
  return server;
}

async function listenTcp(server: Server, host: string, port: number): Promise<number> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  server.once('error', reject);
  server.listen({ host, port, backlog: HTTP_BACKLOG }, resolve);
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
