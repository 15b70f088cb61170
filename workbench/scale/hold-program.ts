// A program for a host: `serve ADDRESS PORT` answers each byte; `hold ADDRESS PORT COUNT` opens
// connections, asks once on each, and keeps them. At each line that is written to it, it asks on
// all again, and tells how many answered.

import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

const [role = '', host = '', port = '', count = '0'] = process.argv.slice(2);
/** Connects under way at once. */
const AT_ONCE = 64;
const TOLD_EVERY = 500;
const STUCK_MS = 60_000;

function tell(event: object): void {
  process.stdout.write(`${JSON.stringify(event)}\n`);
}

async function ask(socket: Socket, byte: number): Promise<boolean> {
  const answer = once(socket, 'data', { signal: AbortSignal.timeout(STUCK_MS) });
  socket.write(Buffer.of(byte & 0xff));
  const [bytes] = (await answer) as [Buffer];
  return bytes.length === 1 && bytes[0] === (byte & 0xff);
}

async function open(index: number): Promise<Socket> {
  const socket = connect({ host, port: Number(port), noDelay: true });
  await once(socket, 'connect', { signal: AbortSignal.timeout(STUCK_MS) });
  if (!(await ask(socket, index))) throw new Error('another byte came back');
  // What ends one that is held is seen when it is asked again.
  socket.on('error', () => {});
  return socket;
}

async function hold(): Promise<readonly Socket[]> {
  const held: Socket[] = [];
  let next = 0;
  let failure = '';
  const worker = async (): Promise<void> => {
    while (next < Number(count) && failure === '') {
      const index = next++;
      try {
        held.push(await open(index));
        if (held.length % TOLD_EVERY === 0) tell({ event: 'open', count: held.length });
      } catch (error) {
        failure = error instanceof Error ? ('code' in error ? String(error.code) : error.message) : String(error);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  tell({ event: 'held', count: held.length, failure });
  return held;
}

if (role === 'serve') {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on('error', () => {});
    socket.on('data', (bytes) => void socket.write(bytes));
  });
  server.listen({ host, port: Number(port), backlog: 4096 });
  await once(server, 'listening');
  tell({ event: 'listening' });
} else {
  const held = await hold();
  for await (const _line of createInterface(process.stdin)) {
    let right = 0;
    for (let at = 0; at < held.length; at += AT_ONCE) {
      const asked = held.slice(at, at + AT_ONCE).map((socket, index) => ask(socket, at + index).catch(() => false));
      right += (await Promise.all(asked)).filter((isRight) => isRight).length;
    }
    tell({ event: 'asked', right });
  }
  process.exit();
}
