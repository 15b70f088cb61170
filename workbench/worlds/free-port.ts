// Ports of the loopback for servers of tests.

import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * One that nobody listens on just now. Below those that the kernel gives to clients, so that none
 * of them takes it meanwhile.
 */
export async function freePort(): Promise<number> {
  const port = randomInt(10_000, 32_768);
  const server = createServer().listen(port, '127.0.0.1');
  try {
    await once(server, 'listening');
  } catch {
    return freePort();
  }
  server.close();
  await once(server, 'close');
  return port;
}
