// Tests that the kernel's listeners are found, also where there are more than fit at once.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:net';
import { test } from 'node:test';
import { listeningSockets } from './listening.ts';

async function listen(host: string): Promise<Server> {
  const server = createServer().listen(0, host);
  await once(server, 'listening');
  return server;
}

const portOf = (server: Server): number => (server.address() as { readonly port: number }).port;

test('a listener is found with its address in its own family, until it is closed', async () => {
  const servers = [await listen('127.0.0.1'), await listen('::1')] as const;
  const [ipv4, ipv6] = servers.map(portOf);
  const find = (family: 'ipv4' | 'ipv6', port?: number): unknown =>
    listeningSockets(family).find((one) => one.port === port)?.address;
  assert.deepEqual(find('ipv4', ipv4), [0x0100_007f]);
  assert.deepEqual(find('ipv6', ipv6), [0, 0, 0, 0x0100_0000]);
  assert.equal(find('ipv6', ipv4), undefined);
  for (const server of servers) {
    server.close();
    await once(server, 'close');
  }
  assert.deepEqual([find('ipv4', ipv4), find('ipv6', ipv6)], [undefined, undefined]);
});

test('all of a thousand listeners are found, each once and with an inode of its own', async () => {
  const servers = await Promise.all(Array.from({ length: 1000 }, () => listen('127.0.0.1')));
  const ports = new Set(servers.map(portOf));
  const found = listeningSockets('ipv4').filter(({ port }) => ports.has(port));
  for (const server of servers) server.close();
  assert.equal(found.length, servers.length);
  assert.equal(new Set(found.map(({ inode }) => inode)).size, servers.length);
});
