import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { MillraceError } from '../errors.ts';
import type { StatusSource } from '../status/daemon-status.ts';
import { status } from '../telemetry/fixtures/fake-status.ts';
import { ApiClient } from './client.ts';
import { fakeSource, temporaryFolder } from './fixtures/fake-source.ts';
import { get } from './fixtures/http.ts';
import { startServer } from './server.ts';

/** A server on both sides, its client and its folder. */
async function serve(given: Partial<StatusSource> = {}, options: { readonly timeoutMs?: number } = {}) {
  await using undo = new AsyncDisposableStack();
  const folder = undo.use(temporaryFolder());
  const socketPath = join(folder.path, 'millrace.sock');
  const http = { host: '127.0.0.1', port: 0 };
  const server = undo.use(await startServer({ source: fakeSource(given), socketPath, http, ...options }));
  const client = new ApiClient({ socketPath });
  const all = undo.move();
  return { server, client, socketPath, url: server.url ?? '', [Symbol.asyncDispose]: () => all.disposeAsync() };
}

const rejectsWith = (promise: Promise<unknown>, code: string, message: RegExp): Promise<void> =>
  assert.rejects(promise, (error) => {
    assert.ok(error instanceof MillraceError, String(error));
    assert.deepEqual([error.code, message.test(error.message)], [code, true], error.message);
    assert.doesNotMatch(error.message, /\n/);
    return true;
  });

describe('the control API', () => {
  test('wrong requests get one line and a code', async () => {
    await using world = await serve();
    for (const [method, path, statusCode, message] of [
      ['GET', '/', 404, /there is no GET \//],
      ['GET', '/v2/status', 404, /no GET \/v2\/status/],
      ['POST', '/v1/status', 404, /no POST/],
      ['GET', '/v1/connections?color=red', 400, /there is no filter 'color'/],
      ['GET', '/v1/connections?mode=fast', 400, /there is no mode 'fast'/],
      ['GET', '/v1/explain', 400, /which connection\?/],
    ] as const) {
      const answer = await get(`${world.url}${path}`, { method });
      assert.equal(answer.status, statusCode, path);
      const { error, code } = JSON.parse(answer.body);
      assert.match(error, message);
      assert.equal(code, 'MILLRACE_ERR_USAGE');
    }
  });

  test('a request that is too large is refused', async () => {
    await using world = await serve();
    const body = 'x'.repeat(100_000);
    const large = await get(`${world.url}/v1/reload`, { method: 'POST', body });
    assert.equal(large.status, 413);
    const longHeader = await get(`${world.url}/healthz`, { headers: { 'x-long': 'y'.repeat(10_000) } });
    assert.equal(longHeader.status, 431);
  });

  test('a page whose name points here gets nothing over TCP, and no CORS', async () => {
    await using world = await serve();
    for (const host of ['evil.example', 'evil.example:80', 'localhost.evil.example', '10.9.9.9']) {
      const answer = await get(`${world.url}/v1/status`, { headers: { host } });
      assert.equal(answer.status, 403, host);
      assert.equal(JSON.parse(answer.body).code, 'MILLRACE_ERR_PERMISSION');
    }
    const own = await get(`${world.url}/v1/status`, { headers: { host: 'localhost', origin: 'http://evil.example' } });
    assert.equal(own.status, 200);
    assert.equal(own.headers['access-control-allow-origin'], undefined);
  });

  test('reload is for the unix socket only', async () => {
    await using world = await serve();
    const answer = await get(`${world.url}/v1/reload`, { method: 'POST' });
    assert.equal(answer.status, 403);
    assert.deepEqual(await world.client.reload(), ['rules: 1 added']);
  });

  test('links are broken only on the unix socket of a daemon that was started for trials', async () => {
    await using ordinary = await serve();
    await assert.rejects(ordinary.client.breakLinks('b'), /start the daemon with MILLRACE_ALLOW_BREAK=1/);
    const broken: string[] = [];
    const breakLinks = async (peer: string): Promise<string[]> => {
      broken.push(peer);
      return ['done'];
    };
    await using world = await serve({ breakLinks });
    const answer = await get(`${world.url}/v1/break?peer=b`, { method: 'POST' });
    assert.equal(answer.status, 403);
    await assert.rejects(world.client.breakLinks(''), /which peer\?/);
    assert.deepEqual(broken, []);
    assert.deepEqual(await world.client.breakLinks('b'), ['done']);
    assert.deepEqual(broken, ['b']);
  });

  test('status, connections and explanations are served', async () => {
    await using world = await serve();
    assert.deepEqual(await world.client.status(), status());
    const locals = async (filter: Parameters<ApiClient['connections']>[0]): Promise<string[]> =>
      (await world.client.connections(filter)).map(({ local }) => local.slice(-1));
    assert.deepEqual(await locals({}), ['0', '1', '2']);
    assert.deepEqual(await locals({ peer: 'c' }), ['1']);
    assert.deepEqual(await locals({ mode: 'plain' }), ['2']);
    assert.deepEqual(await locals({ remote: ':6379', local: ':40000' }), ['0']);
    assert.deepEqual(await world.client.explain('10.0.0.1:1->10.0.0.2:2'), ['10.0.0.1:1->10.0.0.2:2: carried']);
  });

  test('metrics, health and readiness are served on both sides', async () => {
    await using world = await serve();
    const metrics = await get(`${world.url}/metrics`);
    assert.match(metrics.headers['content-type'] ?? '', /^text\/plain; version=0\.0\.4/);
    assert.match(metrics.body, /^millrace_peer_up\{peer="b"\} 1$/m);
    assert.equal((await get(`${world.url}/healthz`)).status, 200);
    assert.equal((await get('http://localhost/readyz', { socketPath: world.socketPath })).status, 200);
  });

  test('a daemon that is not ready says why', async () => {
    const notReady = ['no peer is up', 'steering is not attached'];
    await using world = await serve({ status: async () => status({ state: 'starting', notReady }) });
    const answer = await get(`${world.url}/readyz`);
    assert.deepEqual([answer.status, answer.body], [503, 'no peer is up\nsteering is not attached\n']);
    assert.equal((await get(`${world.url}/healthz`)).status, 200);
  });

  test('one that drains is not ready either', async () => {
    await using world = await serve({ status: async () => status({ state: 'draining' }) });
    const answer = await get(`${world.url}/readyz`);
    assert.deepEqual([answer.status, answer.body], [503, 'draining\n']);
  });

  test('a source that fails or does not answer is an error with its code', async () => {
    const never = new Promise<never>(() => {});
    const gone = new MillraceError('MILLRACE_ERR_NOT_RUNNING', 'no such connection');
    await using world = await serve(
      {
        status: () => never,
        explain: () => Promise.reject(gone),
        connections: () => Promise.reject(new Error('lane 1: broken')),
      },
      { timeoutMs: 20 },
    );
    await rejectsWith(world.client.explain('1'), 'MILLRACE_ERR_NOT_RUNNING', /^no such connection$/);
    await rejectsWith(world.client.connections(), 'MILLRACE_ERR_FAILED', /^lane 1: broken$/);
    await rejectsWith(world.client.status(), 'MILLRACE_ERR_FAILED', /no answer within 0\.02 s/);
    assert.equal((await get(`${world.url}/healthz`)).status, 504);
  });
});

describe('the control socket', () => {
  test('is for its owner only and goes away with the server', async () => {
    const world = await serve();
    assert.equal(statSync(world.socketPath).mode & 0o777, 0o600);
    await world.server.close();
    assert.equal(existsSync(world.socketPath), false);
    await world.server.close();
    await world[Symbol.asyncDispose]();
  });

  test('of a living daemon is left alone', async () => {
    await using world = await serve();
    const second = startServer({ source: fakeSource(), socketPath: world.socketPath });
    await rejectsWith(second, 'MILLRACE_ERR_FAILED', /^already running: .*millrace\.sock/);
    assert.equal((await world.client.status()).node, 'a');
  });

  test('of a dead daemon is replaced', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 'millrace.sock');
    leaveSocketBehind(socketPath);
    await rejectsWith(new ApiClient({ socketPath }).status(), 'MILLRACE_ERR_NOT_RUNNING', /no daemon answers/);
    await using server = await startServer({ source: fakeSource(), socketPath });
    assert.equal((await new ApiClient({ socketPath }).status()).node, 'a');
    assert.equal(server.url, null);
  });

  test('of a dead daemon goes to exactly one of several that start at once', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 'millrace.sock');
    leaveSocketBehind(socketPath);
    const started = await Promise.allSettled(
      Array.from({ length: 6 }, () => startServer({ source: fakeSource(), socketPath })),
    );
    const winners = started.filter((one) => one.status === 'fulfilled');
    assert.equal(winners.length, 1);
    assert.equal((await new ApiClient({ socketPath }).status()).node, 'a');
    assert.deepEqual(readdirSync(folder.path), ['millrace.sock']);
    await winners[0]?.value.close();
    assert.deepEqual(readdirSync(folder.path), []);
  });

  test('takes no name that something else has, nor one that is too long', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 'file.sock');
    writeFileSync(socketPath, 'precious');
    const onFile = startServer({ source: fakeSource(), socketPath });
    await rejectsWith(onFile, 'MILLRACE_ERR_USAGE', /is not a socket/);
    const long = startServer({ source: fakeSource(), socketPath: join(folder.path, 'x'.repeat(100)) });
    await rejectsWith(long, 'MILLRACE_ERR_USAGE', /too long for a unix socket/);
  });

  test('is gone when the TCP side cannot be had', async () => {
    await using world = await serve();
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 'second.sock');
    const http = { host: '127.0.0.1', port: Number(new URL(world.url).port) };
    const second = startServer({ source: fakeSource(), socketPath, http });
    await rejectsWith(second, 'MILLRACE_ERR_FAILED', /^listen on http:\/\/127\.0\.0\.1:\d+: EADDRINUSE/);
    assert.equal(existsSync(socketPath), false);
  });
});

describe('the API client', () => {
  test('says that no daemon runs, and how to start one', async () => {
    const client = new ApiClient({ socketPath: '/does/not/exist.sock' });
    const message = /^no daemon answers on \/does\/not\/exist\.sock \(start one with 'millrace up'\)$/;
    await rejectsWith(client.status(), 'MILLRACE_ERR_NOT_RUNNING', message);
  });

  test('says that the user may not', async () => {
    await using world = await serve();
    chmodSync(world.socketPath, 0);
    const uid = process.geteuid?.() ?? 0;
    // Root may connect to anything: be nobody meanwhile.
    if (uid === 0) process.seteuid?.(65_534);
    try {
      await rejectsWith(world.client.status(), 'MILLRACE_ERR_PERMISSION', /permission denied/);
    } finally {
      if (uid === 0) process.seteuid?.(0);
    }
  });

  test('says that the daemon is stopped, has ended, or is something else', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 'odd.sock');
    for (const [answer, code, message] of [
      [null, 'MILLRACE_ERR_FAILED', /no answer within 0\.05 s/],
      ['', 'MILLRACE_ERR_NOT_RUNNING', /ECONNRESET \(it ended/],
      ['HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello', 'MILLRACE_ERR_FAILED', /another version/],
      ['HTTP/1.1 500 No\r\ncontent-length: 2\r\n\r\nno', 'MILLRACE_ERR_FAILED', /status 500/],
    ] as const) {
      const odd = createServer((socket) => {
        socket.resume();
        if (answer !== null) socket.end(answer);
        socket.on('error', () => {});
      });
      await new Promise<void>((resolve) => void odd.listen(socketPath, resolve));
      const client = new ApiClient({ socketPath, ...(answer === null && { timeoutMs: 50 }) });
      await rejectsWith(client.status(), code, message);
      await new Promise((resolve) => void odd.close(resolve));
    }
  });

  test('stops when it is aborted', async () => {
    await using world = await serve({ status: () => new Promise<never>(() => {}) });
    const asked = world.client.status({ signal: AbortSignal.abort() });
    await assert.rejects(asked, { name: 'AbortError' });
  });
});

/** As a daemon that was killed does. */
function leaveSocketBehind(path: string): void {
  const program = `require('net').createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', program]);
  assert.ok(existsSync(path));
}
