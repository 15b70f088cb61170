// An HTTP/1.1 and an HTTP/2 server, or a client of both that checks what it gets and sends.

import { createHash } from 'node:crypto';
import { Agent, createServer, request } from 'node:http';
import { connect, createServer as createServer2 } from 'node:http2';
import type { Readable } from 'node:stream';

const [role = '', address = '127.0.0.1'] = process.argv.slice(2);
const PORT = 8101;
const PORT2 = 8102;
const sizes = [1, 100, 10_000, 1_000_000, 20_000_000];
const ROUNDS = 20;
/** More than the largest body, which waits in the session while the socket is full. */
const SESSION_MB = 200;

function body(size: number): Buffer {
  return Buffer.alloc(size, createHash('sha256').update(String(size)).digest());
}

async function digest(stream: Readable): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

function expected(size: number): string {
  return createHash('sha256').update(body(size)).digest('hex');
}

/** Answers with as many bytes as the path says, and with the digest of what was sent. */
function serve(): void {
  const server = createServer((asked, answer) => {
    void digest(asked).then((said) => answer.writeHead(200, { digest: said }).end(body(Number(asked.url?.slice(1)))));
  });
  const server2 = createServer2({ maxSessionMemory: SESSION_MB });
  server2.on('stream', (stream, headers) => {
    void digest(stream).then((said) => {
      stream.respond({ ':status': 200, digest: said });
      stream.end(body(Number(headers[':path']?.slice(1))));
    });
  });
  server.listen(PORT, address, () => server2.listen(PORT2, address, () => process.stdout.write('ready\n')));
}

async function ask(agent: Agent, size: number): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const asked = request({ agent, host: address, port: PORT, path: `/${size}`, method: 'POST' }, (answer) => {
    digest(answer).then((got) => (got === expected(size) ? resolve() : reject(new Error(`HTTP/1.1 ${size}`))), reject);
    if (answer.headers.digest !== expected(size)) reject(new Error(`HTTP/1.1 sent ${size}`));
  });
  asked.on('error', reject).end(body(size));
  await promise;
}

async function ask2(session: ReturnType<typeof connect>, size: number): Promise<void> {
  const stream = session.request({ ':path': `/${size}`, ':method': 'POST' });
  let said = '';
  stream.on('response', (headers) => {
    said = String(headers.digest);
  });
  stream.end(body(size));
  const got = await digest(stream);
  if (got !== expected(size) || said !== expected(size)) throw new Error(`HTTP/2 ${size}`);
}

async function call(): Promise<void> {
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  const session = connect(`http://${address.includes(':') ? `[${address}]` : address}:${PORT2}`, {
    maxSessionMemory: SESSION_MB,
  });
  let count = 0;
  for (let round = 0; round < ROUNDS; round++) {
    // The large ones not every time.
    const some = sizes.slice(0, round % 5 === 0 ? sizes.length : 4);
    await Promise.all(some.flatMap((size) => [ask(agent, size), ask2(session, size)]));
    count += some.length * 2;
  }
  agent.destroy();
  session.close();
  process.stdout.write(`${count} right\n`);
}

if (role === 'serve') serve();
else await call();
