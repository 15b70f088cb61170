// What is built on verbs runs over a remote device unchanged: the proxy's channel, and a Vortex
// stream.
// Runs in a process of its own: it changes the environment, and awaits its backend first.

import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { after, test } from 'node:test';
import { Joined } from '../../channel/fixtures/joined.ts';
import { BackendProcess } from '../../remoting/backend/fixtures/backend-process.ts';
import { openReceiver, openSender, type Producer } from '../../vortex/index.ts';
import { openRemoteDevice } from './index.ts';

const BYTES = 500_000;

const backend = await BackendProcess.start();
after(() => backend[Symbol.asyncDispose]());
const { socketPath } = backend;

for (const wire of ['shm', 'tcp']) {
  test(`a channel over a remote device on ${wire} carries all bytes, both ways`, async () => {
    const open = (name: string) => openRemoteDevice(name, { socketPath });
    await using joined = await Joined.up({ devices: [`soft-${wire}`], open });
    const [client, server] = await joined.connect();
    for (const program of [client, server]) {
      program.toSend = BYTES;
      program.ending = 'shut';
    }
    await joined.until('all is said', () => client.isDone && server.isDone);
    assert.deepEqual([client.received, server.received, client.error, server.error], [BYTES, BYTES, '', '']);
    await joined.assertNothingIsLeft();
  });
}

test('a Vortex stream over a remote device arrives whole', async () => {
  // Its engines are threads of their own, which find the backend as any program does.
  process.env.MILLRACE_BACKEND = socketPath;
  const before = (await backend.status()).accepted;
  const sizeBytes = 5_000_001;
  const options = { device: 'soft-shm', poolBlocks: 4 };
  const { promise: port, resolve } = Promise.withResolvers<number>();
  const opening = openSender(0, sizeBytes, { ...options, blockBytes: 256 * 1024, onListening: resolve });
  await using receiver = await openReceiver('127.0.0.1', await port, options);
  await using sender = await opening;
  const hash = createHash('sha256');
  const sent = write(sender, sizeBytes);
  for await (const block of receiver.blocks()) {
    hash.update(block.bytes);
    block.release();
  }
  await receiver.done();
  assert.equal(hash.digest('hex'), await sent);
  assert.ok((await backend.status()).accepted >= before + 2, 'both ends are guests');
});

async function write(sender: Producer, sizeBytes: number): Promise<string> {
  const hash = createHash('sha256');
  const blocks = sender.blocks();
  for (let written = 0; written < sizeBytes; ) {
    const block = await blocks.next();
    block.bytes.set(randomBytes(block.bytes.length));
    hash.update(block.bytes);
    written += block.bytes.length;
    block.commit();
  }
  sender.finish();
  await sender.done();
  return hash.digest('hex');
}
