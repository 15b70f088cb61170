// Who listens, from the kernel's own words.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import { test } from 'node:test';
import { formatIpEndpoint, parseIpEndpoint } from './ip-endpoint.ts';
import {
  type ListeningSocket,
  OwnListeners,
  parseListeners,
  reachableAt,
  readTables,
  scanListeners,
} from './listeners.ts';

const header = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n';

test('lines of the kernel’s tables in the state LISTEN are listeners, others are not', () => {
  const ipv4 = `${header}   0: 0100007F:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1\n   1: 0100007F:18EB 0100007F:9C40 01 0:0 0:0 0 0 0 2\n`;
  assert.deepEqual(parseListeners(ipv4).map(formatIpEndpoint), ['127.0.0.1:6379']);
  const ipv6 = `${header}   0: 000000FD000000000000000001000000:0050 0:0000 0A 0:0 0:0 0 0 0 1\n`;
  assert.deepEqual(parseListeners(ipv6).map(formatIpEndpoint), ['[fd00::1]:80']);
  assert.deepEqual(parseListeners(''), []);
});

test('sockets are known by their inodes, and left out by them', () => {
  const line = (inode: number): string => `   0: 0100007F:18EB 00000000:0000 0A 0:0 0:0 0 0 0 ${inode}\n`;
  const text = `${header}${line(7)}${line(8)}`;
  assert.deepEqual(
    parseListeners(text, (inode) => inode === '7').map(({ inode }) => inode),
    ['8'],
  );
});

test('a listener on every address is reached at each address of the host', () => {
  const own = ['10.0.0.1', 'fd00::1'];
  const at = (words: readonly number[]): string[] =>
    reachableAt({ address: words, port: 80 }, own).map(formatIpEndpoint);
  assert.deepEqual(at([0, 0, 0xffff_0000, 0]), ['10.0.0.1:80']);
  assert.deepEqual(at([0, 0, 0, 0]), ['10.0.0.1:80', '[fd00::1]:80']);
  assert.deepEqual(reachableAt(parseIpEndpoint('10.0.0.1:80'), own).map(formatIpEndpoint), ['10.0.0.1:80']);
});

test('a real listener is found, and gone when it is closed', async () => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  const found = (): string[] =>
    scanListeners()
      .filter((listener) => listener.port === port)
      .map(formatIpEndpoint);
  assert.deepEqual(found(), [`127.0.0.1:${port}`]);
  server.close();
  await once(server, 'close');
  assert.deepEqual(found(), []);
});

test('sock_diag and the tables of the kernel tell the same', async () => {
  await using servers = new AsyncDisposableStack();
  for (const host of ['127.0.0.1', '0.0.0.0', '::1', '::', '::ffff:127.0.0.1']) {
    const server = createServer().listen(0, host);
    servers.defer(() => void server.close());
    await once(server, 'listening');
  }
  const own = new OwnListeners();
  const isOthers = (inode: string): boolean => !own.has(inode);
  const told = (sockets: readonly ListeningSocket[]): string[] =>
    sockets.map((one) => `${formatIpEndpoint(one)} ${one.inode}`).sort();
  const scanned = told(scanListeners(isOthers));
  assert.ok(scanned.length >= 5);
  assert.deepEqual(scanned, told(readTables(isOthers)));
});
