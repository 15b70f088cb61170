// How many connections an HTTP server holds: at the limit, a new one takes the place of the one
// that has been idle for longest, so that nobody keeps others out by holding connections.

import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

export function limitConnections(server: Server, limit: number): void {
  /**
   * With how many requests each waits to have answered. The one that came or was used last is last.
   */
  const open = new Map<Socket, number>();
  const change = (socket: Socket, by: number): void => {
    const requests = open.get(socket);
    if (requests === undefined) return;
    open.delete(socket);
    open.set(socket, requests + by);
  };
  server.on('connection', (socket: Socket) => {
    if (open.size >= limit) longestIdle(open)?.destroy();
    open.set(socket, 0);
    socket.once('close', () => open.delete(socket));
  });
  server.on('request', ({ socket }: IncomingMessage, response: ServerResponse) => {
    change(socket, 1);
    response.once('close', () => change(socket, -1));
  });
}

/** One that is being answered goes only when all are. */
function longestIdle(open: Map<Socket, number>): Socket | undefined {
  const chosen = open.entries().find(([, requests]) => requests === 0)?.[0] ?? open.keys().next().value;
  // Its `close` comes later, and the next connection must not find it again.
  if (chosen !== undefined) open.delete(chosen);
  return chosen;
}
