// A program for a host: listens on each port that is written to it as `listen PORT`, stops at
// `close PORT`, and says when it did, by the monotonic clock. `churn PER_SECOND MS` listens and
// closes so often, on whatever ports are free.

import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { monotonicNs } from '../../src/native/index.ts';

const [address = ''] = process.argv.slice(2);
const servers = new Map<string, Server>();
const STEP_MS = 10;

async function listenAt(port: number): Promise<Server> {
  const server = createServer((socket) => void socket.destroy()).listen(port, address);
  await once(server, 'listening');
  return server;
}

/** A few at a time, each for as long as a step takes. Resolves to how many there were. */
async function churn(perSecond: number, ms: number): Promise<number> {
  const startMs = performance.now();
  let count = 0;
  for (let passedMs = 0; passedMs < ms; passedMs = performance.now() - startMs) {
    const due = Math.floor((passedMs / 1000) * perSecond) - count;
    const some = await Promise.all(Array.from({ length: Math.max(0, due) }, () => listenAt(0)));
    count += some.length;
    await sleep(STEP_MS);
    for (const server of some) server.close();
  }
  return count;
}

for await (const line of createInterface(process.stdin)) {
  const [order = '', port = '', ms = ''] = line.split(' ');
  const ns = monotonicNs();
  let count = 1;
  if (order === 'churn') count = await churn(Number(port), Number(ms));
  else if (order === 'listen') servers.set(port, await listenAt(Number(port)));
  else servers.get(port)?.close();
  process.stdout.write(`${JSON.stringify({ done: order, port: Number(port), ns, count })}\n`);
}
process.exit();
