// Ends a connection with a last line that arrives even while the other side still sends.

import type { Socket } from 'node:net';

/** So long the other side has to read the last line and close. */
const LINGER_MS = 500;

export function hangUp(socket: Socket, lastLine: string): void {
  if (socket.destroyed) return;
  // Closing with bytes unread would send a reset, and a reset takes the last line with it.
  socket.removeAllListeners('data');
  socket.resume();
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(timer));
  socket.end(lastLine);
}

/** Resolves when the sockets are closed, all of them. */
export async function allClosed(sockets: Iterable<Socket>): Promise<void> {
  const open = [...sockets].filter((socket) => !socket.closed);
  await Promise.all(open.map((socket) => new Promise((resolve) => socket.once('close', resolve))));
}
