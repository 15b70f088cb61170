// A program for a host: `ADDRESS PORT COUNT [once]` opens connections, asks on each again and again
// or once, says "held", and prints how they ended.

import { once } from 'node:events';
import { connect, type Socket } from 'node:net';

const [address = '', port, count, isOnce] = process.argv.slice(2);
const messageBytes = 16;
const askMs = 20;

interface Ending {
  readonly code: string;
  readonly ms: number;
}

async function end(socket: Socket): Promise<Ending> {
  let code = 'end';
  socket.on('error', (error: NodeJS.ErrnoException) => {
    code = error.code ?? error.message;
  });
  await once(socket, 'close').catch(() => {});
  return { code, ms: Date.now() };
}

const sockets = Array.from({ length: Number(count) }, () =>
  connect({ host: address, port: Number(port), noDelay: true }),
);
await Promise.all(sockets.map((socket) => once(socket, 'connect')));
let answered = 0;
for (const socket of sockets) socket.on('data', () => answered++);
const endings = Promise.all(sockets.map(end));
const ask = (): void => {
  for (const socket of sockets) if (socket.writable) socket.write('?'.repeat(messageBytes));
};
ask();
const asking = isOnce === undefined ? setInterval(ask, askMs) : undefined;
const answering = setInterval(() => {
  if (answered < sockets.length) return;
  clearInterval(answering);
  process.stdout.write('held\n');
}, askMs);
process.stdout.write(`${JSON.stringify(await endings)}\n`);
clearInterval(asking);
