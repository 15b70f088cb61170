import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type PingpongOptions, pingpongLines, runPingpong } from './pingpong.ts';

const common: PingpongOptions = {
  port: 0,
  device: 'soft-shm',
  sizeBytes: 4096,
  iterations: 10,
  rxDepth: 4,
  mtu: 1024,
  isChecked: true,
  signal: new AbortController().signal,
  say: () => {},
};

/** Both sides in this thread: they take turns while they pause. */
async function play(options: Partial<PingpongOptions>, ofClient: Partial<PingpongOptions> = {}): Promise<string[]> {
  const listening = Promise.withResolvers<number>();
  const server = runPingpong({
    ...common,
    ...options,
    say: (line) => {
      const port = /on port (\d+)/.exec(line)?.[1];
      if (port !== undefined) listening.resolve(Number(port));
    },
  });
  server.catch(() => {});
  const client = runPingpong({ ...common, ...options, host: '127.0.0.1', port: await listening.promise, ...ofClient });
  const documents = await Promise.all([server, client]);
  return documents.map(({ role, bytes, parameters }) => `${role} ${bytes} ${parameters.iterations}`);
}

describe('pingpong', () => {
  test('invalid parameters are refused before a device is opened', async () => {
    for (const wrong of [{ sizeBytes: 0 }, { iterations: 1.5 }, { rxDepth: 0 }, { mtu: 1500 as 1024 }]) {
      await assert.rejects(runPingpong({ ...common, ...wrong }), { code: 'MILLRACE_ERR_USAGE' }, JSON.stringify(wrong));
    }
    await assert.rejects(play({ gidIndex: 77 }), {
      code: 'MILLRACE_ERR_USAGE',
      message: /GID index 77: the port has 1/,
    });
  });

  test('every message is answered, on every wire and at every depth', async () => {
    for (const device of ['soft-shm', 'soft-tcp']) {
      assert.deepEqual(await play({ device }), ['server 81920 10', 'client 81920 10'], device);
    }
    assert.deepEqual(await play({ rxDepth: 1, sizeBytes: 1, iterations: 5 }), ['server 10 5', 'client 10 5']);
  });

  test('data without marks is an error', async () => {
    await assert.rejects(play({}, { isChecked: false }), { message: /invalid data in page 0/ });
  });

  test('the figures have the format of ibv_rc_pingpong', () => {
    const document = { v: 1, role: 'client', device: 'x', bytes: 8_192_000, elapsedS: 0.27 } as const;
    const { sizeBytes, rxDepth, mtu } = common;
    const parameters = { sizeBytes, rxDepth, mtu, iterations: 1000 };
    assert.deepEqual(pingpongLines({ ...document, parameters, mbitPerS: 241.971, usPerIteration: 270.849 }), [
      '8192000 bytes in 0.27 seconds = 241.97 Mbit/sec',
      '1000 iters in 0.27 seconds = 270.85 usec/iter',
    ]);
  });
});
