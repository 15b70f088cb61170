// A test of a guest that is cabled to a host of a lab.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Lab } from '../../../src/lab/index.ts';
import { Guest } from '../../../src/lab/vm/index.ts';

/** Two sockets on one port: the one for IPv6 must not take IPv4 as well. */
const echo = `
  const type = process.argv[1];
  const socket = require('node:dgram').createSocket({ type, ipv6Only: type === 'udp6' });
  socket.on('message', (message, from) => socket.send('echo ' + message, from.port, from.address));
  socket.bind(7000, () => console.log('listening'));
`;
const ask = `
  const socket = require('node:dgram').createSocket(process.argv[1]);
  socket.on('message', (message) => { console.log(String(message)); socket.close(); });
  socket.send('hello', 7000, process.argv[2]);
`;

test('a process in a lab host and one in a guest exchange datagrams', async () => {
  await using lab = await Lab.create();
  const host = lab.host('a');
  const { stdout: linksBefore } = await host.run('ip', ['-o', 'link']);
  {
    await using guest = await Guest.boot({
      memoryMb: 512,
      cpus: 1,
      network: {
        host,
        mtu: 4000,
        address: ['10.88.0.2/24', 'fd88::2/64'],
        hostAddress: ['10.88.0.1/24', 'fd88::1/64'],
      },
    });
    const controller = new AbortController();
    const { promise: areUp, resolve, reject } = Promise.withResolvers<void>();
    let count = 0;
    const onOutput = (chunk: Uint8Array, stream: string): void => {
      if (stream === 'stderr') reject(new Error(Buffer.from(chunk).toString()));
      else if (++count === 2) resolve();
    };
    const { signal } = controller;
    const families = [
      ['udp4', '10.88.0.2'],
      ['udp6', 'fd88::2'],
    ] as const;
    const servers = families.map(([type]) => guest.run([process.execPath, '-e', echo, type], { onOutput, signal }));
    await areUp;
    const answers = families.map((words) =>
      host.run(process.execPath, ['-e', ask, ...words], { signal: AbortSignal.timeout(10_000) }),
    );
    for (const { stdout, stderr } of await Promise.all(answers)) assert.equal(stdout, 'echo hello\n', stderr);
    controller.abort();
    await Promise.allSettled(servers);
  }
  assert.equal((await host.run('ip', ['-o', 'link'])).stdout, linksBefore);
});
