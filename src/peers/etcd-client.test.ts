import assert from 'node:assert/strict';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtempDisposable } from 'node:fs/promises';
import { createServer, type IncomingMessage, type RequestListener, type ServerResponse } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { describe, test } from 'node:test';
import { makeLabCertificates } from '../tls/lab-ca.ts';
import { CompactedError, EtcdClient, type EtcdClientOptions } from './etcd-client.ts';
import { EtcdError } from './etcd-http.ts';

interface Fake extends AsyncDisposable {
  readonly client: EtcdClient;
}

type Answer = (request: IncomingMessage, response: ServerResponse, body: string) => void;

const handle =
  (answer: Answer): RequestListener =>
  (request, response) =>
    void text(request).then((body) => answer(request, response, body));

/** An etcd that answers what the test wants. */
async function fake(answer: Answer, more: Partial<EtcdClientOptions> = {}): Promise<Fake> {
  const server = createServer(handle(answer)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const options = { endpoint: `http://127.0.0.1:${port}`, timeoutMs: 5000, ...more };
  return {
    client: new EtcdClient(options, new AbortController().signal),
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      await once(server.close(), 'close');
    },
  };
}

const never = new AbortController().signal;
const base64 = (plain: string): string => Buffer.from(plain).toString('base64');

async function collect(client: EtcdClient, seen: string[] = []): Promise<void> {
  for await (const events of client.watch('/m/', '41', never)) {
    seen.push(events.map(({ key, value, isDelete }) => `${isDelete ? '-' : '+'}${key}=${value.toString()}`).join(' '));
  }
}

describe('the calls to etcd', () => {
  test('an absent server, no answer, a wrong answer and refusals are errors that name the member and the call', async () => {
    const nobody = new EtcdClient({ endpoint: 'http://127.0.0.1:1', timeoutMs: 5000 }, never);
    await assert.rejects(nobody.grantLease(5), { message: 'etcd http://127.0.0.1:1: lease/grant: ECONNREFUSED' });
    await using silent = await fake(() => {}, { timeoutMs: 100 });
    await assert.rejects(silent.client.grantLease(5), { message: /lease\/grant: no answer within 100 ms/ });
    await assert.rejects(collect(silent.client), { message: /watch: no answer within 100 ms/ });
    await using other = await fake((_, response) => void response.end('<html>'));
    await assert.rejects(other.client.grantLease(5), { message: /the answer is not JSON/ });
    await using refusing = await fake((_, response) => {
      response.writeHead(404).end('{"error":"etcdserver: requested lease not found"}');
    });
    await assert.rejects(refusing.client.revokeLease('5'), { status: 404, message: /requested lease not found/ });
    await using proxy = await fake((_, response) => void response.writeHead(502).end('gone'));
    await assert.rejects(proxy.client.revokeLease('5'), { message: /lease\/revoke: HTTP 502/ });
  });

  test('an answer in another shape is taken for an empty one', async () => {
    await using odd = await fake((_, response) => void response.end('{"kvs":7,"header":[],"responses":{}}'));
    assert.deepEqual(await odd.client.list('/m/', 10), { entries: [], revision: '0' });
    assert.equal(await odd.client.putIf('/m/a', 'v', '1', { absent: true }), undefined);
    assert.equal(await odd.client.keepLeaseAlive('1'), false);
  });

  test('a token that has ended is replaced once', async () => {
    const seen: string[] = [];
    const answer: Answer = (request, response, body) => {
      if (request.url === '/v3/auth/authenticate') {
        seen.push(body);
        response.end(`{"token":"t${seen.length}"}`);
      } else if (request.headers.authorization === 't2') {
        response.end('{"ID":"77"}');
      } else {
        response.writeHead(401).end('{"error":"etcdserver: invalid auth token"}');
      }
    };
    await using etcd = await fake(answer, { username: 'u', password: 'p' });
    assert.equal(await etcd.client.grantLease(5), '77');
    assert.deepEqual(seen, ['{"name":"u","password":"p"}', '{"name":"u","password":"p"}']);
    await using closed = await fake((_, response) => void response.writeHead(401).end('{"error":"no"}'));
    await assert.rejects(closed.client.grantLease(5), { status: 401 });
  });

  test('a watch is read line by line, however it is cut, until it ends', async () => {
    const lines = [
      '{"result":{"created":true}}\n',
      `{"result":{"events":[{"kv":{"key":"${base64('/m/a')}","value":"${base64('ä')}"}},`,
      `{"type":"DELETE","kv":{"key":"${base64('/m/b')}"}}]}}\n`,
    ].join('');
    const bodies: string[] = [];
    await using etcd = await fake((_, response, body) => {
      bodies.push(body);
      for (const byte of lines) response.write(byte);
      response.end();
    });
    const seen: string[] = [];
    await assert.rejects(collect(etcd.client, seen), { message: /watch: the connection ended/ });
    assert.deepEqual(seen, ['', '+/m/a=ä -/m/b=']);
    const { key, range_end, start_revision } = JSON.parse(bodies[0] ?? '').create_request;
    assert.deepEqual([key, range_end, start_revision], [base64('/m/'), base64('/m0'), '42']);
  });

  test('a watch tells compaction from other ends', async () => {
    const say = (line: string) => fake((_, response) => void response.end(`${line}\n`));
    await using compacted = await say('{"result":{"canceled":true,"compact_revision":"50"}}');
    await assert.rejects(collect(compacted.client), CompactedError);
    await using cancelled = await say('{"result":{"canceled":true,"cancel_reason":"no leader"}}');
    await assert.rejects(collect(cancelled.client), { message: /watch: no leader/ });
    await using broken = await say('{"error":{"message":"permission denied"}}');
    await assert.rejects(collect(broken.client), (error) => error instanceof EtcdError && /denied/.test(error.message));
  });

  test('https asks for the right authority and shows a certificate', async () => {
    await using folder = await mkdtempDisposable(join(tmpdir(), 'millrace-etcd-tls-'));
    const { ca, nodes } = await makeLabCertificates({
      openssl: '/usr/bin/openssl',
      folder: folder.path,
      names: ['localhost', 'client'],
      days: 1,
      caDays: 1,
    });
    const [server, client] = nodes.map(({ cert, key }) => ({
      ca: readFileSync(ca),
      cert: readFileSync(cert),
      key: readFileSync(key),
    }));
    assert.ok(server !== undefined && client !== undefined);
    const answer: Answer = (_, response) => void response.end('{"ID":"78"}');
    const listener = createTlsServer({ ...server, requestCert: true, rejectUnauthorized: true }, handle(answer));
    await once(listener.listen(0, 'localhost'), 'listening');
    const endpoint = `https://localhost:${(listener.address() as AddressInfo).port}`;
    try {
      const call = (tls: EtcdClientOptions['tls']) =>
        new EtcdClient({ endpoint, timeoutMs: 5000, ...(tls && { tls }) }, never).grantLease(5);
      await assert.rejects(call(undefined), EtcdError);
      await assert.rejects(call({ ca: client.ca }), EtcdError);
      assert.equal(await call(client), '78');
      // The environment cannot make it trust anybody.
      process.env.NODE_TLS_REJECT_UNAUTHORIZED = '0';
      await assert.rejects(call({ cert: client.cert, key: client.key }), EtcdError);
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    } finally {
      listener.closeAllConnections();
      await once(listener.close(), 'close');
    }
  });
});
