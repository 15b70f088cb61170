import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import type { ConnectionEvent } from '../status/events.ts';
import { isConnectionHeard, publishConnection, publishError, publishPeer } from '../status/events.ts';
import { connection } from '../telemetry/fixtures/fake-status.ts';
import { EventStream } from './event-stream.ts';
import { fakeSource, temporaryFolder } from './fixtures/fake-source.ts';
import { get } from './fixtures/http.ts';
import { startServer } from './server.ts';

const opened: ConnectionEvent = { ...connection(), what: 'opened' };
const peerUp = { peer: 'b', address: '10.0.0.2:4790', state: 'up', reason: '' } as const;
const count = (text: string | null, event: string): number => text?.split(`event: ${event}\n`).length ?? 0;

describe('an event stream', () => {
  test('that nobody reads stays small and says how much it left out', async () => {
    using stack = new DisposableStack();
    const stream = stack.adopt(new EventStream(), (one) => one.close());
    for (let index = 0; index < 1000; index++) publishPeer(peerUp);
    const text = await stream.next();
    // 256 wait at most, and the first of them is no event.
    assert.equal(count(text, 'peer') - 1, 255);
    assert.match(text ?? '', /event: skipped\ndata: \{"count":745\}\n\n$/);
  });

  test('samples connections, and nothing else', async () => {
    let nowMs = 0;
    using stack = new DisposableStack();
    const stream = stack.adopt(new EventStream({ nowMs: () => nowMs }), (one) => one.close());
    for (let index = 0; index < 100; index++) publishConnection(opened);
    publishError({ where: 'etcd', message: 'gone', code: '', peer: '' });
    const first = await stream.next();
    assert.equal(count(first, 'connection') - 1, 20);
    assert.match(
      first ?? '',
      /event: error\ndata: \{"atMs":\d+,"where":"etcd".*\n\nevent: skipped\ndata: \{"count":80\}/,
    );
    nowMs = 500;
    for (let index = 0; index < 100; index++) publishConnection(opened);
    assert.equal(count(await stream.next(), 'connection') - 1, 10);
  });

  test('ends when it is closed, for a reader that waits, too', async () => {
    const stream = new EventStream();
    await stream.next();
    const waiting = stream.next();
    stream.close();
    assert.equal(await waiting, null);
    assert.equal(isConnectionHeard(), false);
    stream.close();
  });
});

describe('GET /v1/events', () => {
  test('tells as it happens, ends with the listener, and leaves no subscription', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 's.sock');
    await using server = await startServer({ source: fakeSource(), socketPath });
    const asked = request({ socketPath: server.socketPath, path: '/v1/events', headers: { host: 'localhost' } }).end();
    const [response] = await once(asked, 'response');
    assert.equal(response.headers['content-type'], 'text/event-stream');
    response.setEncoding('utf8');
    await once(response, 'data');
    publishPeer(peerUp);
    const [text] = await once(response, 'data');
    assert.match(
      text,
      /^event: peer\ndata: \{"atMs":\d+,"peer":"b","address":"10\.0\.0\.2:4790","state":"up","reason":""\}\n\n$/,
    );
    assert.equal(isConnectionHeard(), true);
    asked.on('error', () => {});
    response.on('error', () => {});
    asked.destroy();
    while (isConnectionHeard()) await get('http://localhost/healthz', { socketPath });
  });

  test('ends when the server does', async () => {
    using folder = temporaryFolder();
    const socketPath = join(folder.path, 's.sock');
    const server = await startServer({ source: fakeSource(), socketPath });
    const asked = get('http://localhost/v1/events', { socketPath });
    while (!isConnectionHeard()) await get('http://localhost/healthz', { socketPath });
    await server.close();
    assert.match((await asked).body, /^retry: 2000/);
  });
});
