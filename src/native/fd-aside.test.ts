// Runs in a process of its own: it counts the threads and descriptors of its process.

import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { addon } from './addon.ts';
import { EventFd, Fd, ip, SharedMemory, Socket } from './index.ts';

const descriptors = (): number => readdirSync('/proc/self/fd').length;

async function until(isSo: () => boolean): Promise<void> {
  while (!isSo()) await nextTurn();
}

test('a list of the wrong kind or length is refused', () => {
  for (const wrong of [undefined, 7, [], Array.from({ length: 257 }, () => 0)]) {
    assert.throws(() => addon.closeAside(wrong as never));
  }
});

test('descriptors of somebody else, and what is none, are left alone', async () => {
  const before = descriptors();
  addon.closeAside([0, 1, 2, -1, 987_654, 'x' as never]);
  await until(() => Fd.closingAside === 0);
  assert.equal(descriptors(), before);
});

test('any number of descriptors are closed, those that are closed already are left alone', async () => {
  const before = descriptors();
  const events = Array.from({ length: 600 }, () => EventFd.create());
  events[0]?.close();
  Fd.closeAside(events);
  Fd.closeAside([]);
  assert.ok(events.every(({ isClosed }) => isClosed));
  await until(() => Fd.closingAside === 0);
  assert.equal(descriptors(), before);
});

test('a socket that lingers holds up nothing here', async () => {
  using listener = Socket.stream('ipv4');
  listener.bind(ip('127.0.0.1', 0));
  listener.listen();
  const client = Socket.stream('ipv4');
  await until(() => client.connect(listener.localAddress));
  using memory = SharedMemory.create({ sizeBytes: 1 << 20 });
  while (client.send(memory, 0, memory.sizeBytes) > 0);
  // SOL_SOCKET, SO_LINGER: struct linger { int l_onoff, l_linger }, in seconds.
  assert.equal(addon.setsockopt(client.fd, 1, 13, new Uint8Array(Int32Array.of(1, 3600).buffer)), 0);
  Fd.closeAside([client]);
  assert.equal(Fd.closingAside, 1);
  const acceptor = listener.accept();
  acceptor?.resetOnClose();
  acceptor?.close();
  await until(() => Fd.closingAside === 0);
});
