// What every API here starts from: errors as documents, the Host check over TCP, no request bodies.

import { Hono } from 'hono';
import { answerError, refusal } from './errors.ts';
import { isHostAllowed } from './host-check.ts';

/** No request needs a body; some clients send one. */
const MAX_BODY_BYTES = 4096;

/**
 * `tcpHost`: the host that the TCP listener is on; absent on the unix socket, where the file's mode
 * decides who may ask.
 */
export function guardedApp(tcpHost: string | undefined): Hono {
  const app = new Hono();
  app.onError((error, context) => answerError(context, error));
  app.notFound((context) => refusal(context, 404, `there is no ${context.req.method} ${context.req.path}`));
  if (tcpHost !== undefined) {
    app.use(async (context, next) => {
      const host = context.req.header('host');
      if (isHostAllowed(host, tcpHost)) return next();
      return refusal(
        context,
        403,
        `the Host header '${host ?? ''}' does not name this server; use localhost or ${tcpHost}`,
      );
    });
  }
  // No answer depends on a body, and none is read: Node drops it when the answer is sent.
  app.use(async (context, next) => {
    const length = Number(context.req.header('content-length') ?? 0);
    if (length > MAX_BODY_BYTES) return refusal(context, 413, 'the request is too large');
    return next();
  });
  app.use(async (context, next) => {
    await next();
    context.header('cache-control', 'no-store');
    context.header('x-content-type-options', 'nosniff');
  });
  return app;
}
