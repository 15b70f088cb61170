// A program for a host of a mesh: answers whoever connects with the same bytes, and at each line
// that is written to it sends bytes to all other hosts, and checks what comes back.

import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';

const [own = '', port = '', ...others] = process.argv.slice(2);
const SIZE_BYTES = 64 * 1024;
const STUCK_MS = 60_000;

/** Bytes that no other pair of hosts and no other round has. */
function bytesOf(from: string, to: string, round: string): Buffer {
  return Buffer.alloc(SIZE_BYTES, `${from} to ${to} in round ${round};`);
}

/** '' when all came back as they were. */
async function exchange(to: string, round: string): Promise<string> {
  const sent = bytesOf(own, to, round);
  const socket = connect({ host: to, port: Number(port), noDelay: true, timeout: STUCK_MS });
  const got: Buffer[] = [];
  socket.on('data', (bytes) => got.push(bytes));
  socket.once('timeout', () => socket.destroy(new Error('stuck')));
  socket.end(sent);
  try {
    await once(socket, 'close');
  } catch (error) {
    return `${own} to ${to}: ${error instanceof Error ? error.message : String(error)}`;
  }
  return Buffer.concat(got).equals(sent) ? '' : `${own} to ${to}: other bytes came back`;
}

const server = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
  socket.on('error', () => {});
  socket.pipe(socket);
});
server.listen({ host: own, port: Number(port), backlog: 1024 });
await once(server, 'listening');
process.stdout.write('{"event":"listening"}\n');
for await (const round of createInterface(process.stdin)) {
  const problems = await Promise.all(others.map((to) => exchange(to, round)));
  process.stdout.write(`${JSON.stringify({ event: 'done', problems: problems.filter((one) => one !== '') })}\n`);
}
process.exit();
