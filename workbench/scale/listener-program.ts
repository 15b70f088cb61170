// A program for a host: listens on each port that is written to it as `listen PORT`, stops at
// `close PORT`, and says when it did, by the monotonic clock.

import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { createInterface } from 'node:readline';
import { monotonicNs } from '../../src/native/index.ts';

const [address = ''] = process.argv.slice(2);
const servers = new Map<string, Server>();

for await (const line of createInterface(process.stdin)) {
  const [order = '', port = ''] = line.split(' ');
  const ns = monotonicNs();
  if (order === 'listen') {
    const server = createServer((socket) => void socket.destroy()).listen(Number(port), address);
    servers.set(port, server);
    await once(server, 'listening');
  } else {
    servers.get(port)?.close();
    servers.delete(port);
  }
  process.stdout.write(`${JSON.stringify({ done: order, port: Number(port), ns })}\n`);
}
process.exit();
