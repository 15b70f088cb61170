// Traffic that never repeats, both ways at once: `serve PORT`, or `call PORT HOST...` until
// SIGUSR2. Each connection tells at its end what went out and what came in, by hash, and a client
// tells as it goes.

import { createHash, randomBytes } from 'node:crypto';
import { connect, createServer, type Socket } from 'node:net';

const [what, port, ...hosts] = process.argv.slice(2);
const CHUNK_BYTES = 32 * 1024;
/** How often a client tells how far it is. */
const TOLD_BYTES = 256 * 1024;

const stopping = new AbortController();
process.once('SIGUSR2', () => stopping.abort());
const tell = (event: string, data: unknown): void => {
  process.stdout.write(`${JSON.stringify({ event, data })}\n`);
};

const noise = randomBytes(2 * CHUNK_BYTES);

/** No two chunks are alike, and none has a part that is like another of its parts. */
function chunkAt(position: number): Buffer {
  const start = (position / CHUNK_BYTES) % CHUNK_BYTES;
  const chunk = Buffer.from(noise.subarray(start, start + CHUNK_BYTES));
  chunk.writeDoubleLE(position);
  return chunk;
}

/**
 * Sends until `signal`; then says so to the other side, and waits for the end of what that sends.
 */
function talk(socket: Socket, host: string, signal: AbortSignal): void {
  const [out, into] = [createHash('sha256'), createHash('sha256')];
  let [sentBytes, gotBytes, toldBytes] = [0, 0, 0];
  let error = '';
  const send = (): void => {
    while (!signal.aborted) {
      const chunk = chunkAt(sentBytes);
      out.update(chunk);
      sentBytes += chunk.length;
      if (!socket.write(chunk)) return;
    }
    socket.end();
  };
  socket.on('drain', send);
  socket.on('data', (bytes) => {
    into.update(bytes);
    gotBytes += bytes.length;
    if (gotBytes < toldBytes + TOLD_BYTES) return;
    toldBytes = gotBytes;
    if (what === 'call') tell('moved', { host, bytes: gotBytes });
  });
  socket.on('error', ({ message }) => {
    error = message;
  });
  socket.on('close', () => {
    const sent = { bytes: sentBytes, sha256: out.digest('hex') };
    tell('talked', { host, sent, got: { bytes: gotBytes, sha256: into.digest('hex') }, error });
  });
  send();
}

if (what === 'serve') {
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    const heard = new AbortController();
    socket.once('end', () => heard.abort());
    talk(socket, socket.localAddress ?? '', heard.signal);
  });
  server.listen(Number(port), '::', () => tell('listening', process.pid));
} else {
  tell('calling', process.pid);
  for (const host of hosts) {
    const socket = connect({ host, port: Number(port), allowHalfOpen: true });
    socket.once('connect', () => talk(socket, host, stopping.signal));
  }
}
