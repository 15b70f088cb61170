// The API of a backend: who its guests are and what they do. It only tells; nothing can be changed by it.

import type { Hono } from 'hono';
import type { BackendStatus } from '../status/index.ts';
import { guestMetricsText, metricsContentType } from '../telemetry/index.ts';
import { withinMs } from './errors.ts';
import { guardedApp } from './guarded-app.ts';

interface BackendRoutesOptions {
  readonly status: () => Promise<BackendStatus>;
  /** Of one answer. */
  readonly timeoutMs: number;
  /** What the TCP side listens on; absent on the unix socket. */
  readonly tcpHost?: string;
}

export function backendRoutes({ status, timeoutMs, tcpHost }: BackendRoutesOptions): Hono {
  const app = guardedApp(tcpHost);
  const ask = () => withinMs(timeoutMs, 'status', status());
  app.get('/v1/guests', async (context) => context.json({ v: 1, ...(await ask()) }));
  app.get('/metrics', async (context) => {
    const text = await guestMetricsText(await ask());
    return context.body(text, 200, { 'content-type': metricsContentType });
  });
  app.get('/healthz', async (context) => {
    // Comes from the guests' threads, so that one that is stuck shows.
    await ask();
    return context.text('ok\n');
  });
  return app;
}
