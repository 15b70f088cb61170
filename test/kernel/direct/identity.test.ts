// Asks the kernel what bpf/direct.bpf.c relies on: the sequence numbers of both ends of a
// connection are each other's, whatever has been sent.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { IdentityReader } from '../../../src/direct/identity.ts';
import type { Identity } from '../../../src/direct/pairing.ts';
import { ip, SharedMemory, type Socket } from '../../../src/native/index.ts';
import { eventually } from '../../../workbench/worlds/eventually.ts';
import { type Ends, tcpPair } from './tcp-pair.ts';

function read(reader: IdentityReader, ...sockets: readonly Socket[]): readonly (Identity | undefined)[] {
  return reader.take(sockets.map((socket) => socket.duplicate()));
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
