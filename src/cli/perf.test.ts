import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { PassThrough } from 'node:stream';
import { describe, test } from 'node:test';
import { perfTests } from '../perf/index.ts';
import { runCaptured } from './fixtures/captured-world.ts';

/** A server in this process: its port, and what became of it. */
async function startServer(
  args: readonly string[],
): Promise<{ port: number; outcome: ReturnType<typeof runCaptured> }> {
  const stderr = new PassThrough();
  const outcome = runCaptured(['perf', ...args, '-p', '0'], { stderr });
  let said = '';
  for await (const chunk of stderr) {
    said += chunk;
    const port = /on port (\d+)/.exec(said)?.[1];
    if (port !== undefined) return { port: Number(port), outcome };
  }
  throw new Error(`the server did not say that it waits: ${said}`);
}

describe('perf', () => {
  test('every test explains itself', async () => {
    for (const words of [['perf'], ['dev'], ['dev', 'show'], ...perfTests.map((name) => ['perf', name])]) {
      const { code, stdout } = await runCaptured([...words, '--help']);
      assert.equal(code, 0);
      assert.match(stdout, new RegExp(`Usage: millrace ${words.join(' ')}`));
    }
  });

  test('nonsense is a usage error', async () => {
    for (const [args, message] of [
      [['write-bw', '-s', '0'], /Give a positive whole number/],
      [['write-bw', '-p', '70000'], /Give a number from 0 to 65535/],
      [['write-bandwidth'], /unknown command/],
      [['atomic-lat', '127.0.0.1', '-s', '16'], /an atomic has 8 bytes/],
      [['send-lat', '127.0.0.1', '-q', '2'], /one queue pair/],
      [['write-bw', '127.0.0.1', '-s', '999999999'], /-s is 999999999; expected/],
    ] as const) {
      const { code, stdout, stderr } = await runCaptured(['perf', ...args]);
      assert.equal(code, 2, args.join(' '));
      assert.equal(stdout, '');
      assert.match(stderr, message);
    }
  });

  test('a client whom nobody answers, and a server whose port is taken, say so', async () => {
    const other = createServer().listen(0);
    await once(other, 'listening');
    const address = other.address();
    const port = String(typeof address === 'object' && address !== null ? address.port : 0);
    const server = await runCaptured(['perf', 'write-bw', '-p', port]);
    assert.equal(server.code, 1);
    assert.match(server.stderr, /listen on port \d+: it is in use; choose another with -p/);
    other.close();
    await once(other, 'close');
    const client = await runCaptured(['perf', 'write-bw', '127.0.0.1', '-p', port]);
    assert.equal(client.code, 3);
    assert.match(client.stderr, /no perf server on 127.0.0.1 port \d+; start one there first: millrace perf write-bw/);
  });

  test('a client that talks nonsense or runs something else ends the server with one line', async () => {
    for (const [said, code] of [
      ['GET / HTTP/1.1\r\n\r\n', 1],
      ['{"v":1,"test":"read-bw"}\n', 1],
      ['', 1],
    ] as const) {
      const { port, outcome } = await startServer(['write-bw']);
      const socket = connect(port, '127.0.0.1');
      socket.on('error', () => {});
      socket.end(said);
      assert.equal((await outcome).code, code);
    }
  });

  test('a server that is stopped while it waits exits as interrupted', async () => {
    const controller = new AbortController();
    const outcome = runCaptured(['perf', 'write-bw', '-p', '0'], { signal: controller.signal });
    controller.abort(new DOMException('stopped by SIGINT', 'AbortError'));
    assert.equal((await outcome).code, 130);
  });
});
