// Tests that whoever holds connections to the HTTP port keeps nobody out: neither from that port,
// nor from the control socket.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { describe, test } from 'node:test';
import { eventually } from '../../workbench/worlds/eventually.ts';
import { ApiClient } from './client.ts';
import { fakeSource, temporaryFolder } from './fixtures/fake-source.ts';
import { get } from './fixtures/http.ts';
import { startServer } from './server.ts';

const nobody = 65_534;
/** More than the port holds. */
const many = 270;

async function serve() {
  await using undo = new AsyncDisposableStack();
  const folder = undo.use(temporaryFolder());
  const socketPath = join(folder.path, 'millrace.sock');
  const server = undo.use(
    await startServer({ source: fakeSource(), socketPath, http: { host: '127.0.0.1', port: 0 } }),
  );
  const client = new ApiClient({ socketPath });
  const all = undo.move();
  return { client, socketPath, url: server.url ?? '', [Symbol.asyncDispose]: () => all.disposeAsync() };
}

/**
 * An unprivileged process that opens connections, sends this on each, and keeps whatever it can.
 */
async function holder(url: string, sent: string): Promise<AsyncDisposable> {
  const program = `
    const { connect } = require('node:net');
    let count = 0;
    const open = () => {
      const socket = connect(${new URL(url).port}, '127.0.0.1', () => {
        socket.write(${JSON.stringify(sent)});
        if (++count === ${many}) console.log('holds');
        else open();
      });
      socket.on('error', () => {});
      const trickle = setInterval(() => socket.write('x'), 100);
      socket.on('close', () => clearInterval(trickle));
    };
    open();
    setInterval(() => {}, 1000);`;
  const identity = process.geteuid?.() === 0 ? { uid: nobody, gid: nobody } : {};
  const child = spawn(process.execPath, ['-e', program], {
    stdio: ['ignore', 'pipe', 'inherit'],
    cwd: '/',
    ...identity,
  });
  const lines = createInterface({ input: child.stdout });
  await once(lines, 'line');
  return {
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGKILL');
      await once(child, 'exit');
    },
  };
}

describe('clients that hold connections to the HTTP port', () => {
  for (const [what, sent] of [
    ['idle ones', ''],
    ['ones with headers that trickle', 'GET /healthz HTTP/1.1\r\nx-long: '],
    ['ones with a body that never comes', 'GET /healthz HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n\r\n'],
    ['event streams', 'GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n'],
  ] as const) {
    test(`${what} keep nobody out`, async () => {
      await using world = await serve();
      await using _held = await holder(world.url, sent);
      assert.equal((await get(`${world.url}/healthz`)).status, 200);
      assert.equal((await world.client.status()).v, 1);
      // Their event streams are not those of the control socket.
      const events = connect(world.socketPath);
      events.write('GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n');
      const [bytes] = (await once(events, 'data')) as [Buffer];
      assert.match(bytes.toString(), /^HTTP\/1\.1 200 /);
      events.destroy();
    });
  }

  test('the one that has been idle for longest makes room, and those that are answered do not', async () => {
    await using world = await serve();
    const open = async (): Promise<Socket> => {
      const socket = connect(Number(new URL(world.url).port), '127.0.0.1');
      socket.on('error', () => {});
      await once(socket, 'connect');
      return socket;
    };
    const follower = await open();
    follower.write('GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n');
    await once(follower, 'data');
    const first = await open();
    const sockets: Socket[] = [];
    while (sockets.length < 255) sockets.push(await open());
    await eventually('the first is closed', () => first.resume().readyState !== 'open');
    assert.equal(follower.readyState, 'open');
    assert.equal(sockets.at(-1)?.readyState, 'open');
    for (const socket of [follower, ...sockets]) socket.destroy();
  });
});
