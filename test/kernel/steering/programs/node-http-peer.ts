// A program for a host: `server` echoes bodies by HTTP/1.1 on port 8080 and HTTP/2 on 8082, `client
// ADDRESS` prints digests of what came back.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { Agent, createServer, type IncomingMessage, request } from 'node:http';
import { connect, createServer as createServer2 } from 'node:http2';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';

const requests = 120;
const downloadBytes = 20_000_000;
/** At once; all of them take more memory than Node allows a session. */
const streams = 40;

function body(number: number): Buffer {
  const seed = createHash('sha512').update(String(number)).digest();
  return Buffer.alloc((number * 7919) % 300_000, seed);
}

function digest(...parts: readonly Buffer[]): string {
  const hash = createHash('sha256');
  for (const part of parts) hash.update(part);
  return hash.digest('hex');
}

function answer(path: string, from: Readable, to: NodeJS.WritableStream): void {
  if (path === '/download') to.end(Buffer.alloc(downloadBytes, 'download'));
  else from.pipe(to);
}

async function serve(): Promise<void> {
  const http = createServer((incoming, outgoing) => {
    outgoing.setHeader('x-client', incoming.socket.remoteAddress ?? '');
    answer(incoming.url ?? '/', incoming, outgoing);
  });
  const http2 = createServer2((incoming, outgoing) => answer(incoming.url, incoming, outgoing));
  http.listen(8080, '::');
  http2.listen(8082, '::');
  await Promise.all([once(http, 'listening'), once(http2, 'listening')]);
  process.stdout.write('ready\n');
}

async function ask1(host: string, agent: Agent, path: string, sent: Buffer): Promise<readonly [string, Buffer]> {
  const method = path === '/download' ? 'GET' : 'POST';
  const outgoing = request({ host: host.replace(/[[\]]/g, ''), port: 8080, agent, path, method });
  outgoing.end(sent);
  const [incoming] = (await once(outgoing, 'response')) as [IncomingMessage];
  return [String(incoming.headers['x-client']), await buffer(incoming)];
}

async function overHttp1(host: string): Promise<unknown> {
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  const all = Array.from({ length: requests }, (_, number) => ask1(host, agent, '/echo', body(number)));
  const answers = await Promise.all(all);
  const [, download] = await ask1(host, agent, '/download', Buffer.alloc(0));
  agent.destroy();
  return {
    isRight: answers.every(([, bytes], number) => bytes.equals(body(number))),
    seenFrom: [...new Set(answers.map(([client]) => client))],
    download: digest(download),
  };
}

async function overHttp2(host: string): Promise<unknown> {
  const session = connect(`http://${host}:8082`);
  const ask = async (path: string, sent: Buffer): Promise<Buffer> => {
    const stream = session.request({ ':path': path, ':method': 'POST' });
    stream.end(sent);
    return buffer(stream);
  };
  const answers: Buffer[] = [];
  while (answers.length < requests) {
    const wave = Array.from({ length: streams }, (_, index) => ask('/echo', body(answers.length + index)));
    answers.push(...(await Promise.all(wave)));
  }
  const download = await ask('/download', Buffer.alloc(0));
  session.close();
  return {
    isRight: answers.every((bytes, number) => bytes.equals(body(number))),
    digest: digest(...answers),
    download: digest(download),
  };
}

const [role, host = ''] = process.argv.slice(2);
if (role === 'server') await serve();
else process.stdout.write(JSON.stringify({ http1: await overHttp1(host), http2: await overHttp2(host) }));
