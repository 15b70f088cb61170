// Asks the kernel what bpf/direct.bpf.c relies on: the sequence numbers of both ends of a
// connection are each other's, whatever has been sent.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IdentityReader } from '../../../src/direct/identity.ts';
import type { Identity } from '../../../src/direct/pairing.ts';
import { BpfMap, ip, SharedMemory, type Socket } from '../../../src/native/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { type Ends, tcpPair } from './tcp-pair.ts';

function read(reader: IdentityReader, ...sockets: readonly Socket[]): readonly (Identity | undefined)[] {
  return reader.read(sockets);
}

/** The SYN counts in what the client has sent, and nowhere else. */
function assertMirrored(client: Identity | undefined, acceptor: Identity | undefined): void {
  assert.ok(client !== undefined && acceptor !== undefined);
  assert.equal(acceptor.irs, (client.iss + 1) >>> 0);
  assert.equal(acceptor.iss, client.irs);
}

/** Sends so much, and waits until it was received and acknowledged. */
async function move(from: Socket, to: Socket, memory: SharedMemory, sizeBytes: number): Promise<void> {
  let [sent, received] = [0, 0];
  await eventually('all arrives', () => {
    if (sent < sizeBytes) sent += Math.max(0, from.send(memory, 0, Math.min(memory.sizeBytes, sizeBytes - sent)));
    received += Math.max(0, to.receive(memory, 0, memory.sizeBytes));
    return received === sizeBytes && from.unacknowledgedBytes === 0;
  });
}

test('the numbers of both ends mirror each other, and stay what they are while bytes go both ways', async () => {
  using reader = IdentityReader.create();
  using memory = SharedMemory.create({ sizeBytes: 1 << 20 });
  for (const listen of [ip('127.0.0.1', 0), ip('::1', 0)]) {
    using ends: Ends = await tcpPair({ listen });
    const { client, acceptor } = ends;
    const first = read(reader, client, acceptor);
    assertMirrored(first[0], first[1]);
    for (const size of [1, 1000, 10_000_000]) {
      await move(client, acceptor, memory, size);
      await move(acceptor, client, memory, size);
      assert.deepEqual(read(reader, acceptor, client), first.toReversed());
    }
  }
});

test('a socket whose bytes the kernel moves elsewhere has none, nor has one that is half closed', async () => {
  using reader = IdentityReader.create();
  using taken = await tcpPair();
  using map = BpfMap.create({ type: 'sockmap', name: 'taken', keyBytes: 4, valueBytes: 4, maxEntries: 1 });
  map.update(new Uint8Array(4), new Uint8Array(Int32Array.of(taken.client.fd).buffer));
  using ended = await tcpPair();
  ended.client.shutdownSend();
  await eventually('the end is there', () => read(reader, ended.acceptor)[0] === undefined);
  using good = await tcpPair();
  const answers = read(reader, taken.client, ended.client, ended.acceptor, good.client, good.acceptor);
  assert.deepEqual(answers.slice(0, 3), [undefined, undefined, undefined]);
  assertMirrored(answers[3], answers[4]);
});

test('a socket that is given several times has the same identity each time, and none is kept', async () => {
  using reader = IdentityReader.create();
  using ends = await tcpPair();
  const { client, acceptor } = ends;
  const answers = read(reader, client, acceptor, client, client, acceptor);
  assertMirrored(answers[0], answers[1]);
  assert.deepEqual(answers.slice(2), [answers[0], answers[0], answers[1]]);
  assert.deepEqual(read(reader, client), [answers[0]]);
});

test('many sockets are read at once', async () => {
  using reader = IdentityReader.create();
  await using undo = new AsyncDisposableStack();
  const pairs = await Promise.all(Array.from({ length: 1000 }, async () => undo.use(await tcpPair())));
  const answers = read(reader, ...pairs.flatMap(({ client, acceptor }) => [client, acceptor]));
  for (let index = 0; index < answers.length; index += 2) assertMirrored(answers[index], answers[index + 1]);
  assert.equal(new Set(answers.map((answer) => `${answer?.iss} ${answer?.irs}`)).size, 2 * pairs.length);
});
