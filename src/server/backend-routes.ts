// The API of a backend: its guests and what they do. It is read-only.

import type { Hono } from 'hono';
import type { BackendStatus } from '../status/index.ts';
import { guestMetricsText, metricsContentType } from '../telemetry/index.ts';
import { withinMs } from './errors.ts';
import { guardedApp } from './guarded-app.ts';

interface BackendRoutesOptions {
  readonly status: () => Promise<BackendStatus>;
  /** How long the backend may take for one answer. */
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
    // The status comes from the guests' threads, so a thread that is stuck makes this time out.
    await ask();
    return context.text('ok\n');
  });
  return app;
}
