// A checked bulk transfer: `serve PORT BYTES` sends, `fetch HOST PORT BYTES` receives; both print
// the sha256 of the bytes.

import { createHash } from 'node:crypto';
import { connect, createServer } from 'node:net';

const [what, ...words] = process.argv.slice(2);
const SEED = 0x9e37_79b9;

/** The same bytes on every machine, with no two blocks alike. */
function fill(bytes: Buffer): void {
  const view = new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >>> 2);
  let state = SEED;
  for (let index = 0; index < view.length; index++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0;
    view[index] = state ^ index;
  }
}

function sha256(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

if (what === 'serve') {
  const [port, size] = words.map(Number);
  const bytes = Buffer.alloc(size ?? 0);
  fill(bytes);
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.end(bytes);
  });
  server.listen(port, () => process.stdout.write(`${JSON.stringify({ sha256: sha256(bytes) })}\n`));
} else if (what === 'fetch') {
  const [host = '', port = '', size = ''] = words;
  const bytes = Buffer.alloc(Number(size));
  const startMs = performance.now();
  let got = 0;
  const socket = connect({
    host,
    port: Number(port),
    onread: {
      buffer: Buffer.alloc(1 << 20),
      callback: (count, buffer) => {
        if (buffer instanceof Uint8Array) bytes.set(buffer.subarray(0, Math.min(count, bytes.length - got)), got);
        got += count;
        return true;
      },
    },
  });
  socket.on('close', (hadError) => {
    const seconds = (performance.now() - startMs) / 1000;
    process.stdout.write(`${JSON.stringify({ bytes: got, seconds, sha256: sha256(bytes.subarray(0, got)) })}\n`);
    process.exitCode = hadError ? 1 : 0;
  });
  socket.on('error', (error) => process.stderr.write(`${error.message}\n`));
} else {
  process.stderr.write('usage: serve PORT BYTES, or fetch HOST PORT BYTES\n');
  process.exitCode = 2;
}
