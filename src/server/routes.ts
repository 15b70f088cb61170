// The control API of a daemon: what each path answers, from a StatusSource.

import type { Context, Hono } from 'hono';
import { UsageError } from '../errors.ts';
import type { StatusSource } from '../status/index.ts';
import { metricsContentType, metricsText } from '../telemetry/index.ts';
import {
  type ConnectionFilter,
  connectionModes,
  filterKeys,
  isConnectionMode,
  selectConnections,
} from './connection-filter.ts';
import { refusal, withinMs } from './errors.ts';
import { EventStream } from './event-stream.ts';
import { guardedApp } from './guarded-app.ts';

const MAX_EVENT_STREAMS = 32;

interface RoutesOptions {
  readonly source: StatusSource;
  /** How long the source may take for one answer. */
  readonly timeoutMs: number;
  /** Of this listener; closed with the server. */
  readonly streams: Set<EventStream>;
  /**
   * The host that the TCP listener is on; absent on the unix socket, where the file's mode decides
   * who may ask.
   */
  readonly tcpHost?: string;
}

export function routes({ source, timeoutMs, streams, tcpHost }: RoutesOptions): Hono {
  const app = guardedApp(tcpHost);
  const ask = <T>(what: string, answer: Promise<T>): Promise<T> => withinMs(timeoutMs, what, answer);
  const status = () => ask('status', source.status());

  app.get('/v1/status', async (context) => context.json(await status()));
  app.get('/v1/connections', async (context) => {
    const filter = connectionFilter(context);
    const all = await ask('connections', source.connections());
    return context.json({ v: 1, connections: selectConnections(all, filter) });
  });
  app.get('/v1/explain', async (context) => {
    const which = context.req.query('which') ?? '';
    if (which === '')
      throw new UsageError('explain: which connection? give ?which=4711 or ?which=10.0.0.1:40312->10.0.0.2:6379');
    return context.json({ v: 1, lines: await ask('explain', source.explain(which)) });
  });
  app.post('/v1/reload', async (context) => {
    if (tcpHost !== undefined) return refusal(context, 403, 'reload: not allowed over TCP; use the control socket');
    return context.json({ v: 1, lines: await ask('reload', source.reload()) });
  });
  app.post('/v1/break', async (context) => {
    if (tcpHost !== undefined) return refusal(context, 403, 'break: not allowed over TCP; use the control socket');
    if (source.breakLinks === undefined) {
      return refusal(context, 403, 'break: not allowed; start the daemon with MILLRACE_ALLOW_BREAK=1');
    }
    const peer = context.req.query('peer') ?? '';
    if (peer === '') throw new UsageError('break: which peer? give ?peer=b');
    return context.json({ v: 1, lines: await ask('break', source.breakLinks(peer)) });
  });
  app.get('/v1/events', (context) => events(context, streams));

  app.get('/metrics', async (context) => {
    const text = await metricsText(await status());
    return context.body(text, 200, { 'content-type': metricsContentType });
  });
  app.get('/healthz', async (context) => {
    // A lane that has just got stuck makes this time out.
    const stuck = (await status()).lanes.filter(({ stuckSeconds }) => stuckSeconds > 0);
    const lines = stuck.map(({ index, stuckSeconds }) => `lane ${index} is stuck since ${stuckSeconds} s\n`);
    return lines.length === 0 ? context.text('ok\n') : context.text(lines.join(''), 503);
  });
  app.get('/readyz', async (context) => {
    const { state, notReady } = await status();
    const isReady = state === 'ready' && notReady.length === 0;
    const reasons = notReady.length > 0 ? notReady : [state];
    return context.text(isReady ? 'ok\n' : `${reasons.join('\n')}\n`, isReady ? 200 : 503);
  });
  return app;
}

function connectionFilter(context: Context): ConnectionFilter {
  const query = context.req.query();
  for (const key of Object.keys(query)) {
    if (!filterKeys.has(key))
      throw new UsageError(`connections: there is no filter '${key}'; use ${[...filterKeys].join(', ')}`);
  }
  const { mode, ...rest } = query;
  if (mode === undefined) return rest;
  if (!isConnectionMode(mode))
    throw new UsageError(`connections: there is no mode '${mode}'; use ${connectionModes.join(', ')}`);
  return { ...rest, mode };
}

function events(context: Context, streams: Set<EventStream>): Response {
  if (streams.size >= MAX_EVENT_STREAMS)
    return refusal(
      context,
      503,
      `events: ${MAX_EVENT_STREAMS} clients follow them already, which is the limit; try again later`,
    );
  const stream = new EventStream({ onClose: () => streams.delete(stream) });
  streams.add(stream);
  return context.body(stream.body(), 200, { 'content-type': 'text/event-stream' });
}
