// The perf tools as users run them: two processes, on one machine and on two hosts of a lab.

import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { describe, type TestContext, test } from 'node:test';
import { Lab } from '../../../src/lab/index.ts';
import { perfTests } from '../../../src/perf/index.ts';

const millrace = join(import.meta.dirname, '../../../millrace');

type Start = (args: readonly string[]) => ChildProcess;

const here: Start = (args) => spawn(millrace, args, { stdio: ['ignore', 'pipe', 'pipe'] });

interface Server {
  readonly child: ChildProcess;
  readonly port: string;
  readonly stdout: Promise<string>;
  readonly talk: Promise<string>;
  readonly code: Promise<number | null>;
}

async function startServer(t: TestContext, args: readonly string[], start: Start = here): Promise<Server> {
  const child = start(['perf', ...args, '-p', '0']);
  t.after(() => child.kill('SIGKILL'));
  const code = once(child, 'exit').then(([status]) => status as number | null);
  const stdout = text(child.stdout as Readable);
  const lines = createInterface(child.stderr as Readable);
  const said: string[] = [];
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  lines.on('line', (line) => {
    said.push(line);
    const port = /on port (\d+)/.exec(line)?.[1];
    if (port !== undefined) resolve(port);
  });
  const talk = once(lines, 'close').then(() => said.join('\n'));
  void code.then(() => reject(new Error(`the server ended: ${said.join(' ')}`)));
  return { child, port: await promise, stdout, talk, code };
}

async function runClient(
  args: readonly string[],
  start: Start = here,
): Promise<{ code: number; stdout: string; stderr: string }> {
  const child = start(['perf', ...args]);
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout as Readable),
    text(child.stderr as Readable),
    once(child, 'exit'),
  ]);
  return { code, stdout, stderr };
}

function checkDocument(stdout: string, name: string, iterations: number): void {
  const document = JSON.parse(stdout);
  assert.deepEqual([document.v, document.role, document.parameters.test], [1, 'client', name]);
  assert.equal(document.iterations, iterations);
  if (name.endsWith('-bw')) {
    const { averageMiBPerS, peakMiBPerS, messagesPerS } = document.bandwidth;
    assert.ok(averageMiBPerS > 0 && peakMiBPerS >= averageMiBPerS && messagesPerS > 0);
    return;
  }
  const { min, p50, p90, p99, max, ...rest } = document.latencyUs;
  const ascending = [min, p50, p90, p99, rest['p99.9'], rest['p99.99'], max];
  assert.ok(min > 0);
  assert.deepEqual(
    ascending,
    ascending.toSorted((left, right) => left - right),
  );
}

describe('perf between two processes', () => {
  test('different tests on the two sides are refused by both, with the reason', async (t) => {
    const server = await startServer(t, ['write-bw']);
    const client = await runClient(['read-bw', '127.0.0.1', '-p', server.port]);
    assert.deepEqual([client.code, await server.code], [1, 1]);
    assert.match(client.stderr, /the server refused: ".*the client runs read-bw; start both sides alike"/);
    assert.match(await server.talk, /millrace: perf write-bw: the client runs read-bw/);
  });

  for (const device of ['soft-shm', 'soft-tcp']) {
    for (const name of perfTests) {
      test(`${name} on ${device} measures, and both sides print one document`, async (t) => {
        const server = await startServer(t, [name, '-d', device, '--json']);
        const client = await runClient([
          name,
          '127.0.0.1',
          '-d',
          device,
          '-p',
          server.port,
          '-n',
          '200',
          '-F',
          '--json',
        ]);
        assert.equal(client.code, 0, client.stderr);
        checkDocument(client.stdout, name, 200);
        assert.equal(await server.code, 0, await server.talk);
        assert.equal(JSON.parse(await server.stdout).role, 'server');
      });
    }
  }

  test('several queue pairs, a size and a count that divide by nothing, and the table for people', async (t) => {
    const server = await startServer(t, ['send-bw', '-d', 'soft-shm']);
    const options = ['-d', 'soft-shm', '-q', '3', '-s', '777', '-n', '1001', '-t', '7'];
    const client = await runClient(['send-bw', '127.0.0.1', '-p', server.port, ...options]);
    assert.equal(client.code, 0, client.stderr);
    assert.match(client.stdout, /^ #bytes +#iterations +BW peak\[MB\/sec\] +BW average\[MB\/sec\] +MsgRate\[Mpps\]$/m);
    assert.match(client.stdout, /^ 777 +1001 +\d+\.\d\d +\d+\.\d\d +\d+\.\d{6}$/m);
    assert.equal(await server.code, 0);
  });

  test('a run for a time ends after that time', async (t) => {
    const server = await startServer(t, ['write-lat', '-d', 'soft-shm']);
    const startMs = performance.now();
    const client = await runClient([
      'write-lat',
      '127.0.0.1',
      '-p',
      server.port,
      '-d',
      'soft-shm',
      '-D',
      '1',
      '--json',
    ]);
    assert.equal(client.code, 0, client.stderr);
    assert.ok(performance.now() - startMs >= 1000);
    assert.ok(JSON.parse(client.stdout).iterations > 0);
    assert.equal(await server.code, 0);
  });

  for (const name of ['write-bw', 'send-bw', 'write-lat', 'send-lat']) {
    test(`${name}: a client that is killed ends the server with an error, and the other way round`, async (t) => {
      for (const victim of ['client', 'server'] as const) {
        const server = await startServer(t, [name, '-d', 'soft-shm']);
        const client = here(['perf', name, '127.0.0.1', '-d', 'soft-shm', '-p', server.port, '-D', '600']);
        t.after(() => client.kill('SIGKILL'));
        const exited = once(client, 'exit');
        const lines = createInterface(client.stderr as Readable);
        const said: string[] = [];
        for await (const line of lines) {
          said.push(line);
          // Both are connected, and the test runs.
          if (line.startsWith('remote address')) (victim === 'client' ? client : server.child).kill('SIGKILL');
        }
        const [code] = await exited;
        if (victim === 'client') {
          assert.equal(await server.code, 1);
          assert.match(await server.talk, /^millrace: /m);
        } else {
          assert.equal(code, 1);
          assert.match(said.join('\n'), /^millrace: /m);
        }
      }
    });
  }
});

test('Ctrl-C ends either side as interrupted', async (t) => {
  for (const victim of ['client', 'server'] as const) {
    const server = await startServer(t, ['send-bw', '-d', 'soft-shm']);
    const client = here(['perf', 'send-bw', '127.0.0.1', '-d', 'soft-shm', '-p', server.port, '-D', '600']);
    t.after(() => client.kill('SIGKILL'));
    const exited = once(client, 'exit');
    for await (const line of createInterface(client.stderr as Readable)) {
      if (line.startsWith('remote address')) (victim === 'client' ? client : server.child).kill('SIGINT');
    }
    const [code] = await exited;
    assert.deepEqual([code, await server.code], victim === 'client' ? [130, 1] : [1, 130]);
  }
});

test('perf between two hosts of a lab, over soft-tcp', async (t) => {
  await using lab = await Lab.create({ hosts: ['client', 'server'] });
  const on =
    (host: string): Start =>
    (args) =>
      lab.host(host).spawn(millrace, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  for (const name of ['write-bw', 'send-lat'] as const) {
    const server = await startServer(t, [name, '-d', 'soft-tcp'], on('server'));
    const where = [lab.host('server').ipv4, '-d', 'soft-tcp', '-p', server.port];
    const client = await runClient([name, ...where, '-n', '200', '--json'], on('client'));
    assert.equal(client.code, 0, client.stderr);
    checkDocument(client.stdout, name, 200);
    assert.match(client.stderr, new RegExp(`remote address: .*${RegExp.escape(lab.host('server').ipv4)}`));
    assert.equal(await server.code, 0, await server.talk);
  }
});
