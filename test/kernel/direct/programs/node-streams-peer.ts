// A program for a host: `server KEY CERTIFICATE` sends back what comes, by net on port 8090 and by
// TLS on 8091, through pipes; `client ADDRESS FILE` sends the file by both and prints digests.

import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { createReadStream, readFileSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { PassThrough, Readable, Transform, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createServer as createTlsServer, connect as tlsConnect } from 'node:tls';

const connections = 2;
const messages = 200;

/** Counts and digests what passes. */
class Meter extends Transform {
  readonly #hash: Hash = createHash('sha256');
  #bytes = 0;

  override _transform(chunk: Buffer, _: BufferEncoding, done: (error: null, chunk: Buffer) => void): void {
    this.count(chunk);
    done(null, chunk);
  }

  count(chunk: Buffer): void {
    this.#hash.update(chunk);
    this.#bytes += chunk.length;
  }

  told(): string {
    return `${this.#bytes} ${this.#hash.digest('hex')}`;
  }
}

/**
 * What both ends have seen must be the same, so the server tells what came after each connection.
 */
async function echo(socket: Socket): Promise<void> {
  const meter = new Meter();
  await pipeline(socket, meter, new PassThrough({ highWaterMark: 5000 }), socket);
  process.stdout.write(`${meter.told()}\n`);
}

async function serve(key: string, cert: string): Promise<void> {
  const fail = (error: unknown): void => void process.stderr.write(`${String(error)}\n`);
  const plain = createServer({ allowHalfOpen: true }, (socket) => void echo(socket).catch(fail));
  const options = { key: readFileSync(key), cert: readFileSync(cert), allowHalfOpen: true };
  const secure = createTlsServer(options, (socket) => void echo(socket).catch(fail));
  plain.listen(8090, '::');
  secure.listen(8091, '::');
  await Promise.all([once(plain, 'listening'), once(secure, 'listening')]);
  process.stdout.write('ready\n');
}

const nowhere = (): Writable => new Writable({ write: (_chunk, _encoding, done) => done() });

/** One message there and back at a time, so that the connection is promoted, then the file. */
async function send(socket: Socket, file: string): Promise<string> {
  const [sent, came] = [new Meter(), new Meter()];
  const back = pipeline(socket, came, nowhere());
  for (let number = 0; number < messages; number++) {
    const message = Buffer.alloc(1 + ((number * 797) % 5000), String(number));
    const whole = new Promise<void>((resolve) => {
      let rest = message.length;
      const take = (chunk: Buffer): void => {
        rest -= chunk.length;
        if (rest > 0) return;
        socket.off('data', take);
        resolve();
      };
      socket.on('data', take);
    });
    sent.count(message);
    socket.write(message);
    await whole;
  }
  await pipeline(createReadStream(file), sent, socket);
  await back;
  const [there, here] = [sent.told(), came.told()];
  return here === there ? here : `${there} was sent and ${here} came back`;
}

async function ask(host: string, file: string): Promise<unknown> {
  const open = [
    () => connect({ host, port: 8090 }),
    () => tlsConnect({ host, port: 8091, rejectUnauthorized: false }),
    () => tlsConnect({ host, port: 8091, rejectUnauthorized: false, maxVersion: 'TLSv1.2' }),
  ];
  const results = [];
  for (const one of open) {
    results.push(await Promise.all(Array.from({ length: connections }, () => send(one(), file))));
  }
  const web = Readable.toWeb(createReadStream(file));
  const socket = connect({ host, port: 8090 });
  const meter = new Meter();
  await Promise.all([pipeline(Readable.fromWeb(web), socket), pipeline(socket, meter, nowhere())]);
  results.push(meter.told());
  return results;
}

const [role, first = '', second = ''] = process.argv.slice(2);
if (role === 'server') await serve(first, second);
else process.stdout.write(JSON.stringify(await ask(first, second)));
